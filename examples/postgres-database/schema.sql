CREATE TABLE customer (id serial PRIMARY KEY, name text NOT NULL);
CREATE TABLE purchase (id serial PRIMARY KEY, customer integer NOT NULL REFERENCES customer, item text NOT NULL);
