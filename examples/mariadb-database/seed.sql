CREATE TABLE customer (id integer AUTO_INCREMENT PRIMARY KEY, name varchar(80) NOT NULL);
CREATE TABLE purchase (id integer AUTO_INCREMENT PRIMARY KEY, customer integer NOT NULL REFERENCES customer (id), item varchar(80));
INSERT INTO customer (name) VALUES ('Ada'), ('Grace');
INSERT INTO purchase (customer, item) VALUES (1, 'lamp');
