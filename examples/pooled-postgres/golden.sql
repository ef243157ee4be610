CREATE TABLE customer (id integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY, name text NOT NULL);
INSERT INTO customer (name) VALUES ('Ada'), ('Grace');
