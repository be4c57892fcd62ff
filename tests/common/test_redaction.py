"""No secret is shown, whatever its key is called and wherever in a text it stands; what is none stays readable."""

from __future__ import annotations

import time

import pytest

from penstock.common import Configuration
from penstock.common.secrets import HIDDEN, hide_in_text, hide_secret, hide_secrets, is_secret


@pytest.mark.parametrize(
    "key",
    [
        "my.password", "s3.secret-key", "fs.s3a.access.key", "fs.azure.account.key.acct.dfs.core.windows.net",
        "spark.hadoop.fs.azure.account.key.acct.blob.core.windows.net", "fs.azure.sas.box.acct.blob.core.windows.net",
        "fs.azure.account.oauth2.client.secret", "sasl.jaas.config", "properties.sasl.jaas.config", "ssl.key.passphrase",
        "ssl.keystore.key", "ssl.key.pem", "basic.auth.user.info", "rest.api_key", "apiKey", "gcs.private_key", "PGPASSWORD",
        "metrics.reporter.dghttp.apikey", "azure.connectionString", "db.pwd", "security.token", "kms.encryption-key",
        "metrics.reporter.otel.http-headers",
    ],
)  # fmt: skip
def test_values_of_keys_that_name_a_secret_are_hidden(key: str) -> None:
    assert is_secret(key)
    assert hide_secret(key, "value") == HIDDEN


@pytest.mark.parametrize(
    "key",
    ["penstock.block.size", "state.backend.type", "parallelism.default", "group.id", "key.fields", "partition.keys",
     "taskmanager.memory.process.size", "execution.checkpointing.dir", "record.key.field", "table.primary-key"],
)  # fmt: skip
def test_other_keys_are_shown(key: str) -> None:
    assert hide_secrets({key: "value"}) == {key: "value"}


def test_a_switch_gives_nothing_away() -> None:
    assert hide_secret("security.delegation.tokens.enabled", "false") == "false"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:hush@db/jobs", f"postgresql://me:{HIDDEN}@db/jobs"),
        ("jdbc:postgresql://me:hu@sh@db:5432/jobs?x=1", f"jdbc:postgresql://me:{HIDDEN}@db:5432/jobs?x=1"),
        ("amqp://a:hush@h1,amqp://b:hush@h2", f"amqp://a:{HIDDEN}@h1,amqp://b:{HIDDEN}@h2"),
        ("redis://:hush@cache/0", f"redis://:{HIDDEN}@cache/0"),
        ("https://ghp_hushhushhushhushhush@github.com/x", f"https://{HIDDEN}@github.com/x"),
        ("host=db user=me password=hush dbname=x", f"host=db user=me password={HIDDEN} dbname=x"),
        ("host=db password='hu sh' dbname=x", f"host=db password={HIDDEN} dbname=x"),
        (
            "AccountName=a;AccountKey=hush==;EndpointSuffix=core.windows.net",
            f"AccountName=a;AccountKey={HIDDEN};EndpointSuffix=core.windows.net",
        ),
        ("https://a.blob.core.windows.net/c?sv=2022&sig=hush%3D&se=1", f"https://a.blob.core.windows.net/c?sv=2022&sig={HIDDEN}&se=1"),
        ("s3?X-Amz-Credential=hush&X-Amz-Signature=hush&x=1", f"s3?X-Amz-Credential={HIDDEN}&X-Amz-Signature={HIDDEN}&x=1"),
        (
            'ScramLoginModule required username="me" password="hu\\"sh";',
            f'ScramLoginModule required username="me" password={HIDDEN};',
        ),
        ('{"user": "me", "client_secret": "hush"}', f'{{"user": "me", "client_secret": {HIDDEN}}}'),
        ("{'api_key': 'hush', 'n': 1}", f"{{'api_key': {HIDDEN}, 'n': 1}}"),
        ("Authorization: Bearer hush.hush", f"Authorization: Bearer {HIDDEN}"),
        ("a\n-----BEGIN RSA PRIVATE KEY-----\nhush\n-----END RSA PRIVATE KEY-----\nb", f"a\n{HIDDEN}\nb"),
        ("-----BEGIN PRIVATE KEY-----\nhush, cut off", HIDDEN),
    ],
)  # fmt: skip
def test_secrets_inside_a_text_are_hidden_and_the_rest_is_not(text: str, shown: str) -> None:
    assert "hush" not in shown
    assert hide_in_text(text) == shown
    assert hide_secret("some.setting", text) == shown
    assert hide_in_text(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/folder/checkpoints", "file:///home/me/jobs", "broker-1:9092,broker-2:9092", "10 s", "local[*,4]",
        "mail me@example.org, see http://example.org/a@b", "postgresql://me@db/jobs", "a=b&c=d", "ValueError: x = 3",
        "the token is missing or wrong: send it as a header", "org.apache.kafka:kafka-clients:3.9",
    ],
)  # fmt: skip
def test_what_is_no_secret_stays(text: str) -> None:
    assert hide_in_text(text) == text


def test_a_long_text_takes_no_time() -> None:
    started = time.process_time()
    for text in (
        "a" * 200_000 + ":=",
        "password" * 30_000 + ":",
        "://" * 60_000,
        "'a':" * 50_000,
        "x://" + "a:" * 90_000,
    ):
        hide_in_text(text)
    assert time.process_time() - started < 20  # a pattern that backtracks takes hours


def test_a_configuration_shows_none() -> None:
    shown = str(Configuration.from_dict({"s3.secret-key": "x", "url": "db://u:hush@h", "a": "b"}))
    assert shown == f"{{s3.secret-key={HIDDEN}, url=db://u:{HIDDEN}@h, a=b}}"
