INSERT INTO customer (name) VALUES ('Ada'), ('Grace');
INSERT INTO purchase (customer, item) VALUES (1, 'lamp');
