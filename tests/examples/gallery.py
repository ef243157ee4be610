"""The examples of the gallery: how a test sees what each has made, and uses it as an application would."""

import json
import os
import runpy
import socket
import subprocess
import urllib.error
import urllib.request
from base64 import b64decode
from collections.abc import Callable, Mapping
from http.client import HTTPResponse
from typing import Any

import boto3
import psycopg
import pytest
from tests.examples import external_services
from tests.examples.kinds import FOLDER, Example

Settings = Mapping[str, str]
Outputs = Mapping[str, str]


def postgres_database(request: pytest.FixtureRequest) -> Example:
    settings = request.getfixturevalue("postgres")

    def left() -> list[str]:
        with external_services.connect(settings) as connection:
            both = "SELECT datname FROM pg_database UNION ALL SELECT rolname FROM pg_roles"
            return [
                name for (name,) in connection.execute(f"SELECT * FROM ({both}) AS each(name) WHERE name ~ '^dayfly'")
            ]

    def use(outputs: Outputs) -> None:
        assert outputs["db/schema.tables"] == "customer,purchase"
        with psycopg.connect(outputs["db/provision.url"], autocommit=True) as connection:
            assert connection.execute("SELECT name FROM customer ORDER BY id").fetchall() == [("Ada",), ("Grace",)]
            others = "SELECT has_database_privilege('pg_monitor', current_database(), 'CONNECT')"
            assert connection.execute(others).fetchone() == (False,)
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("CREATE DATABASE another")

    return Example("postgres-database", "postgres-database-demo", {}, settings, left, use)


def mariadb_database(request: pytest.FixtureRequest) -> Example:
    settings = request.getfixturevalue("mariadb")
    eyes = {**settings, "MARIADB_USER": "eyes"}

    def left() -> list[str]:
        both = "SELECT schema_name AS name FROM information_schema.schemata UNION ALL SELECT user FROM mysql.user"
        return mariadb(eyes, f"SELECT name FROM ({both}) AS every WHERE name LIKE 'dayfly%'").split()

    def use(outputs: Outputs) -> None:
        name, password = outputs["db/provision.database"], outputs["db/provision.password"]
        own = {**settings, "MARIADB_USER": name, "MYSQL_PWD": password}
        assert mariadb(own, f"SELECT name FROM {name}.customer ORDER BY id").split() == ["Ada", "Grace"]
        assert mariadb(own, "SHOW DATABASES").split() == [name, "information_schema"]

    return Example("mariadb-database", "mariadb-demo", {}, settings, left, use)


def mariadb(settings: Settings, sql: str) -> str:
    """Return the server's answer without headings."""
    place = [
        f"--host={settings['MARIADB_HOST']}",
        f"--port={settings['MARIADB_PORT']}",
        f"--user={settings['MARIADB_USER']}",
    ]
    command = ["mariadb", "--no-defaults", "--batch", "--skip-column-names", *place]
    environment = {**os.environ, **settings}
    return subprocess.run(command, input=sql, env=environment, check=True, capture_output=True, text=True).stdout


def redis_acl(request: pytest.FixtureRequest) -> Example:
    settings = request.getfixturevalue("redis")
    eyes = {**settings, "REDIS_USER": "eyes"}

    def left() -> list[str]:
        users = [name for name in redis(eyes, "ACL USERS").split() if name.startswith("dayfly")]
        return [*users, *redis(eyes, "KEYS dayfly*").split()]

    def use(outputs: Outputs) -> None:
        user, prefix = outputs["cache/provision.user"], outputs["cache/provision.prefix"]
        own = {**settings, "REDIS_USER": user, "REDISCLI_AUTH": outputs["cache/provision.password"]}
        assert redis(own, rf'SET "{prefix}it\'s \"quoted\"\nin two lines" hello') == "OK"
        assert redis(own, rf'GET "{prefix}it\'s \"quoted\"\nin two lines"') == "hello"
        for command in FORBIDDEN:
            assert "NOPERM" in redis(own, command.replace("{}", prefix)), command

    return Example("redis-acl", "redis-demo", {}, settings, left, use)


# Commands that would reveal other tenants' keys or clients, write outside of the prefix, or block the server.
FORBIDDEN = (
    "GET dayfly-somebody:else",
    "RENAME {}a dayfly-somebody:else",
    "SUBSCRIBE dayfly-somebody:else",
    "PUBLISH dayfly-somebody:else x",
    "PUBSUB CHANNELS",
    *("SCAN 0", "KEYS *", "RANDOMKEY", "DBSIZE", "SELECT 1", "MOVE {}a 1", "COPY {}a {}b DB 1", "SWAPDB 0 1"),
    *("FLUSHALL", "FLUSHDB", "CONFIG GET *", "CLIENT LIST", "CLIENT KILL TYPE normal", "ACL LIST", "INFO", "MONITOR"),
    *("EVAL 'while true do end' 0", "SCRIPT FLUSH", "FUNCTION FLUSH", "SHUTDOWN", "REPLICAOF NO ONE"),
)


def redis(settings: Settings, command: str) -> str:
    """Return the server's answer; an error as its text."""
    place = ["-h", settings["REDIS_HOST"], "-p", settings["REDIS_PORT"], "--user", settings["REDIS_USER"]]
    words = ["redis-cli", "--no-auth-warning", *place]
    environment = {**os.environ, **settings}
    return subprocess.run(
        words, input=command, env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


def nats_stream(request: pytest.FixtureRequest) -> Example:
    settings = request.getfixturevalue("nats")

    def left() -> list[str]:
        with urllib.request.urlopen(
            f"http://{settings['NATS_HOST']}:{settings['NATS_TOLD']}/jsz?streams=1&accounts=1"
        ) as answer:
            accounts = json.load(answer).get("account_details", [])
        return [stream["name"] for account in accounts for stream in account.get("stream_detail", [])]

    def use(outputs: Outputs) -> None:
        stream, subject = outputs["orders/stream.name"], f"{outputs['orders/stream.subject']}.order.new"
        publish({**settings, "NATS_USER": "eyes"}, subject, b"a lamp")
        kept = jetstream(settings)(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})
        assert b64decode(kept["message"]["data"]) == b"a lamp"
        told = jetstream(settings)(f"CONSUMER.INFO.{stream}.{outputs['orders/consumer.name']}", {})
        assert told["num_pending"] == 1

    return Example("nats-stream", "nats-demo", {}, settings, left, use)


def jetstream(settings: Settings) -> Callable[[str, dict[str, Any]], Any]:
    """The request that the example's own lines make, of this server."""
    place = FOLDER / "nats-stream" / "jetstream.py"

    def ask(what: str, wish: dict[str, Any]) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in settings.items():
                patch.setenv(name, value)
            patch.setenv("DAYFLY_RESOURCE_ID", "")
            return runpy.run_path(str(place))["request"](what, wish)

    return ask


def publish(settings: Settings, subject: str, body: bytes) -> None:
    """As an application does, and see it taken."""
    who = json.dumps({"verbose": False, "user": settings["NATS_USER"], "pass": settings["NATS_PASSWORD"]}).encode()
    with socket.create_connection((settings["NATS_HOST"], int(settings["NATS_PORT"])), timeout=10) as connection:
        connection.sendall(b"CONNECT %s\r\nPUB %s %d\r\n%s\r\nPING\r\n" % (who, subject.encode(), len(body), body))
        said = b""
        while b"PONG" not in said:
            said += connection.recv(4096)
    assert b"-ERR" not in said, said


def vault_secret(request: pytest.FixtureRequest) -> Example:
    settings = request.getfixturevalue("vault")

    def left() -> list[str]:
        with external_services.connect(settings) as connection:
            users = [name for (name,) in connection.execute("SELECT rolname FROM pg_roles WHERE rolname LIKE 'v-%'")]
        return [*users, *vault_list(settings, "database/roles")]

    def use(outputs: Outputs) -> None:
        user, password = outputs["shop/credentials.username"], outputs["shop/credentials.password"]
        with external_services.connect({**settings, "PGUSER": user, "PGPASSWORD": password}) as connection:
            ask = "SELECT pg_has_role('shop_reader', 'member'), pg_has_role('shop_writer', 'member')"
            assert connection.execute(ask).fetchone() == (True, False)

    return Example("vault-secret", "vault-demo", {}, settings, left, use)


def vault_list(settings: Settings, path: str) -> list[str]:
    """The names below a path."""
    try:
        with vault(settings, "LIST", path) as answer:
            return json.load(answer)["data"]["keys"]
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return []
        raise


def vault(settings: Settings, method: str, path: str, body: Mapping[str, str] | None = None) -> HTTPResponse:
    """Send a request to the server, and return its response."""
    url, headers = f"{settings['BAO_ADDR']}/v1/{path}", {"X-Vault-Token": settings["BAO_TOKEN"]}
    data = json.dumps(body).encode() if body is not None else None
    return urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method))


def sqs_queue(request: pytest.FixtureRequest) -> Example:
    settings = request.getfixturevalue("sqs")

    def left() -> list[str]:
        return list(queues(settings).list_queues().get("QueueUrls", ()))

    def use(outputs: Outputs) -> None:
        url = outputs["jobs/provision.queue-url"]
        queues(settings).send_message(QueueUrl=url, MessageBody="a lamp")
        (message,) = queues(settings).receive_message(QueueUrl=url)["Messages"]
        assert message["Body"] == "a lamp"
        kept = queues(settings).get_queue_attributes(QueueUrl=url, AttributeNames=["VisibilityTimeout"])
        assert kept["Attributes"] == {"VisibilityTimeout": "45"}
        assert queues(settings).list_queue_tags(QueueUrl=url)["Tags"] == {"team": "checkout"}

    return Example("sqs-queue", "sqs-demo", {"region": external_services.REGION}, settings, left, use)


def queues(settings: Settings):
    """Our own eyes on the server of queues."""
    return amazon("sqs", settings["AWS_ENDPOINT_URL_SQS"], settings)


def s3_seed(request: pytest.FixtureRequest) -> Example:
    server = request.getfixturevalue("s3")
    settings = server.environment()

    def left() -> list[str]:
        return [bucket["Name"] for bucket in buckets(settings).list_buckets()["Buckets"]]

    def use(outputs: Outputs) -> None:
        bucket, prefix = outputs["files/provision-s3-bucket.bucket-name"], outputs["files/seed-s3-bucket.base-prefix"]
        kept = buckets(settings).get_object(Bucket=bucket, Key=f"{prefix}catalogue.json")
        assert json.load(kept["Body"])["lamp"] == 30

    return Example("s3-seed", "s3-seed-demo", {"region": external_services.REGION}, settings, left, use)


def buckets(settings: Settings):
    """Our own eyes on the S3 server."""
    return amazon("s3", settings["AWS_ENDPOINT_URL"], settings)


def amazon(service: str, url: str, settings: Settings):
    access, secret = settings["AWS_ACCESS_KEY_ID"], settings["AWS_SECRET_ACCESS_KEY"]
    keys = {"aws_access_key_id": access, "aws_secret_access_key": secret}
    return boto3.client(service, endpoint_url=url, region_name=external_services.REGION, **keys)


def _names_in_postgres(_: Settings, outputs: Outputs) -> list[str]:
    with psycopg.connect(outputs["db/provision.url"], autocommit=True) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM customer")]


def _names_in_mariadb(settings: Settings, outputs: Outputs) -> list[str]:
    name, password = outputs["db/provision.database"], outputs["db/provision.password"]
    told = mariadb({**settings, "MARIADB_USER": name, "MYSQL_PWD": password}, f"SELECT hex(name) FROM {name}.customer")
    return [bytes.fromhex(each).decode() for each in told.split()]


def _file_in_s3(settings: Settings, outputs: Outputs) -> list[str]:
    place = (outputs["files/provision-s3-bucket.bucket-name"], outputs["files/seed-s3-bucket.base-prefix"])
    kept = buckets(settings).get_object(Bucket=place[0], Key=f"{place[1]}catalogue.json")
    return [kept["Body"].read().decode()]


def _tags_in_sqs(settings: Settings, outputs: Outputs) -> list[str]:
    return list(queues(settings).list_queue_tags(QueueUrl=outputs["jobs/provision.queue-url"])["Tags"].values())


# For each example, a function that reads a param back from the place that it was written to.
READERS: Mapping[str, Callable[[Settings, Outputs], list[str]]] = {
    "postgres-database": _names_in_postgres,
    "mariadb-database": _names_in_mariadb,
    "s3-seed": _file_in_s3,
    "sqs-queue": _tags_in_sqs,
}
MAKERS: Mapping[str, Callable[[pytest.FixtureRequest], Example]] = {
    "postgres-database": postgres_database,
    "mariadb-database": mariadb_database,
    "redis-acl": redis_acl,
    "nats-stream": nats_stream,
    "vault-secret": vault_secret,
    "sqs-queue": sqs_queue,
    "s3-seed": s3_seed,
}
# The tools of each example that are built or installed once.
BUILT = {"vault-secret": ("openbao",), "sqs-queue": ("moto", "awscli"), "s3-seed": ("versitygw", "awscli")}
