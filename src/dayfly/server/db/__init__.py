"""The database: tables, migrations, transactions, group commit and notifications between replicas."""
