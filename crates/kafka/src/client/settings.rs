//! `properties.*`: settings of the client, by Java's names.
//!
//! | property | default | |
//! |---|---|---|
//! | `bootstrap.servers` | | `host:port`, several by `,` |
//! | `group.id` | | the group whose offsets are committed, with checkpoints |
//! | `client.id` | `millstream` | for the broker's log |
//! | `security.protocol` | `PLAINTEXT` | or `SSL`, `SASL_PLAINTEXT`, `SASL_SSL` |
//! | `sasl.mechanism` | `PLAIN` | or `SCRAM-SHA-256`, `SCRAM-SHA-512` |
//! | `sasl.jaas.config` | | of which `username="…"` and `password="…"` are read |
//! | `sasl.username`, `sasl.password` | | the same in two |
//! | `ssl.truststore.location` | | certificates in PEM; without it those of the system |
//! | `ssl.truststore.certificates` | | the same in the option itself |
//! | `ssl.keystore.location` | | our certificates and our key, in one file of PEM |
//! | `ssl.keystore.certificate.chain`, `ssl.keystore.key` | | the same in options |
//! | `isolation.level` | `read_committed` | or `read_uncommitted` |
//! | `auto.offset.reset` | `none` | where the group has no offset: `earliest`, `latest` |
//! | `fetch.max.wait.ms`, `fetch.min.bytes` | `500`, `1` | how long a broker waits for how much |
//! | `fetch.max.bytes`, `max.partition.fetch.bytes` | 50 MiB, 1 MiB | of one response |
//! | `request.timeout.ms` | `30000` | until an answer counts as lost |
//! | `socket.connection.setup.timeout.ms` | `4000` | for connection, encryption and password |
//!
//! Properties of Java's client that change nothing here are accepted ([`WITHOUT_EFFECT`]); others
//! are refused.

use std::sync::Arc;
use std::time::Duration;

use millstream_connect::Options;
use millstream_contract::table::TableOptions;
use millstream_contract::{Error, Result};

use super::address::Address;
use super::away::Away;
use super::tls::{Pems, Tls};
use super::user::{Hash, Mechanism, Secret, User};

/// Where properties stand among the options.
pub(crate) const PREFIX: &str = "properties.";

/// Properties of Java's client without effect here.
const WITHOUT_EFFECT: &[&str] = &[
    "allow.auto.create.topics",
    "auto.commit.interval.ms",
    "check.crcs",
    "client.dns.lookup",
    "client.rack",
    "connections.max.idle.ms",
    "default.api.timeout.ms",
    "enable.auto.commit",
    "group.instance.id",
    "group.protocol",
    "heartbeat.interval.ms",
    "key.deserializer",
    "max.poll.interval.ms",
    "max.poll.records",
    "metadata.max.age.ms",
    "partition.assignment.strategy",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "send.buffer.bytes",
    "session.timeout.ms",
    "socket.connection.setup.timeout.max.ms",
    "ssl.enabled.protocols",
    "ssl.protocol",
    "value.deserializer",
];

const NO_KERBEROS: &str = "Kerberos and OAuth do not run here";
const LOG_IN: &str =
    "log in by 'properties.sasl.mechanism' = PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512";
const NO_PASSWORD: &str = "files of certificates and keys are read without a password";
const DECRYPT: &str = "leave the option out; decrypt a key: openssl pkey -in … -out key.pem";

/// Properties of Java's client that are refused, by how their names begin: why, and what to do.
const REFUSED: &[(&str, &str, &str)] = &[
    ("sasl.kerberos.", NO_KERBEROS, LOG_IN),
    ("sasl.login.", NO_KERBEROS, LOG_IN),
    ("sasl.oauthbearer.", NO_KERBEROS, LOG_IN),
    ("ssl.key.password", NO_PASSWORD, DECRYPT),
    ("ssl.keystore.password", NO_PASSWORD, DECRYPT),
    ("ssl.truststore.password", NO_PASSWORD, DECRYPT),
];

/// The settings of a client.
#[derive(Debug, Clone)]
pub(crate) struct ClientSettings {
    pub(crate) servers: Vec<Address>,
    pub(crate) client_id: String,
    pub(crate) tls: Option<Tls>,
    pub(crate) user: Option<User>,
    pub(crate) connect_timeout: Duration,
    pub(crate) request_timeout: Duration,
    /// Presence of the brokers that a sink writes to; a wait for an answer looks there.
    pub(crate) away: Option<Arc<Away>>,
}

impl ClientSettings {
    /// The brokers that were named, for messages.
    pub(crate) fn shown(&self) -> String {
        self.servers.iter().map(Address::to_string).collect::<Vec<_>>().join(",")
    }

    /// From the options of a table.
    pub(crate) fn from_options(
        table: &TableOptions,
        options: &Options<'_>,
    ) -> Result<ClientSettings> {
        for name in WITHOUT_EFFECT {
            options.text(&format!("{PREFIX}{name}"));
        }
        let client_id = options.text("properties.client.id").unwrap_or("millstream").to_string();
        let milliseconds = |name: &str, default: u64| {
            let value = options.integer(&format!("{PREFIX}{name}"), 1, 3_600_000)?;
            Ok::<_, Error>(Duration::from_millis(value.unwrap_or(default)))
        };
        let (encrypted, named) = protocol(table, options)?;
        let tls = encrypted.then(|| tls(table, options, PREFIX)).transpose()?;
        let user = named.then(|| user(options)).transpose()?;
        let names = table.options.keys().filter_map(|key| key.strip_prefix(PREFIX));
        for name in names {
            let refused = REFUSED.iter().find(|(beginning, ..)| name.starts_with(beginning));
            if let Some((_, message, help)) = refused {
                return Err(options.error(&format!("{PREFIX}{name}"), (*message).into(), *help));
            }
        }
        Ok(ClientSettings {
            servers: servers(options)?,
            client_id,
            tls,
            user,
            connect_timeout: milliseconds("socket.connection.setup.timeout.ms", 4_000)?,
            request_timeout: milliseconds("request.timeout.ms", 30_000)?,
            away: None,
        })
    }
}

/// The addresses of `bootstrap.servers`.
fn servers(options: &Options<'_>) -> Result<Vec<Address>> {
    const KEY: &str = "properties.bootstrap.servers";
    let form = "brokers as 'host:port', several of them with ',' between";
    let servers = options.parsed(KEY, form, |text| {
        let servers = text.split(',').map(str::trim).filter(|text| !text.is_empty());
        servers.map(address).collect::<Option<Vec<Address>>>().filter(|list| !list.is_empty())
    })?;
    servers.ok_or_else(|| {
        options.error(
            KEY,
            "a table of Kafka needs its brokers".into(),
            "write 'properties.bootstrap.servers' = 'localhost:9092' among the options",
        )
    })
}

/// `host:port`, also with a listener's name in front: `SASL_SSL://host:port`.
fn address(text: &str) -> Option<Address> {
    let text = text.split_once("://").map_or(text, |(_, address)| address);
    let (host, port) = text.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = port.parse().ok().filter(|port| *port > 0)?;
    (!host.is_empty()).then(|| Address { host: host.to_string(), port })
}

/// Whether connections are encrypted, and whether we say who we are.
fn protocol(table: &TableOptions, options: &Options<'_>) -> Result<(bool, bool)> {
    let form = "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL";
    let found = options.parsed("properties.security.protocol", form, |text| {
        Some(match text.trim().to_ascii_uppercase().as_str() {
            "PLAINTEXT" => (false, false),
            "SSL" => (true, false),
            "SASL_PLAINTEXT" => (false, true),
            "SASL_SSL" => (true, true),
            _ => return None,
        })
    })?;
    let found = found.unwrap_or((false, false));
    // A password without a protocol that sends it is a mistake that shows late otherwise.
    for (beginning, used, message, help) in [
        (
            "properties.sasl.",
            found.1,
            "nobody asks for a password with this 'properties.security.protocol'",
            "set 'properties.security.protocol' to SASL_SSL or SASL_PLAINTEXT",
        ),
        (
            "properties.ssl.",
            found.0,
            "nothing is encrypted with this 'properties.security.protocol'",
            "set 'properties.security.protocol' to SSL or SASL_SSL",
        ),
    ] {
        let is_one = |key: &&String| {
            let name = key.strip_prefix(PREFIX).unwrap_or_default();
            key.starts_with(beginning) && !WITHOUT_EFFECT.contains(&name)
        };
        if let Some(key) = table.options.keys().find(is_one).filter(|_| !used) {
            return Err(options.error(key, message.into(), help));
        }
    }
    Ok(found)
}

/// Name and password.
fn user(options: &Options<'_>) -> Result<User> {
    let mechanism = match options.text("properties.sasl.mechanism").map(str::trim) {
        None | Some("PLAIN") => Mechanism::Plain,
        Some("SCRAM-SHA-256") => Mechanism::Scram(Hash::Sha256),
        Some("SCRAM-SHA-512") => Mechanism::Scram(Hash::Sha512),
        Some(other) => {
            return Err(options.error(
                "properties.sasl.mechanism",
                format!(
                    "expected PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, found '{}'",
                    other.escape_debug()
                ),
                "Kerberos (GSSAPI) and OAUTHBEARER do not run here",
            ));
        }
    };
    const JAAS: &str = "properties.sasl.jaas.config";
    let jaas = options.text(JAAS);
    let name = options.text("properties.sasl.username");
    let password = options.text("properties.sasl.password");
    let (name, password) = match (jaas, name, password) {
        (Some(jaas), None, None) => (jaas_value(jaas, "username"), jaas_value(jaas, "password")),
        (None, name, password) => (name.map(str::to_string), password.map(str::to_string)),
        _ => {
            return Err(options.error(
                JAAS,
                "name and password are given twice".into(),
                "leave 'properties.sasl.username' and 'properties.sasl.password' out",
            ));
        }
    };
    match (name, password) {
        (Some(name), Some(password)) => Ok(User { mechanism, name, password: Secret(password) }),
        // The text itself is a secret.
        _ => Err(options.error(
            JAAS,
            "expected a name and a password".into(),
            "write '…LoginModule required username=\"NAME\" password=\"PASSWORD\";', or \
             'properties.sasl.username' and 'properties.sasl.password'",
        )),
    }
}

/// The value of `name="…"` in a line of JAAS; a backslash goes before a quote. Without quotes, as
/// Java takes it, a value ends at a space or a semicolon.
fn jaas_value(jaas: &str, name: &str) -> Option<String> {
    let mut rest = jaas;
    loop {
        let at = rest.find(name)?;
        let before = rest[..at].chars().next_back();
        rest = &rest[at + name.len()..];
        if before.is_none_or(char::is_whitespace)
            && let Some(value) = rest.trim_start().strip_prefix('=')
        {
            let value = value.trim_start();
            if !value.starts_with(['"', '\'']) {
                let ends = |c: char| c <= ' ' || matches!(c, ';' | '=' | '/' | '"' | '\'');
                let (value, rest) = value.split_at(value.find(ends)?);
                let is_whole = rest.starts_with(|c: char| c <= ' ' || c == ';');
                return (is_whole && !value.is_empty()).then(|| value.to_string());
            }
            let mut characters = value.chars();
            let quote = characters.next()?;
            let mut text = String::new();
            while let Some(character) = characters.next() {
                match character {
                    '\\' => text.push(characters.next()?),
                    character if character == quote => return Some(text),
                    character => text.push(character),
                }
            }
            return None;
        }
    }
}

/// Certificates and key, from options that begin with `prefix`.
pub(crate) fn tls(table: &TableOptions, options: &Options<'_>, prefix: &str) -> Result<Tls> {
    let mut pems = Pems::default();
    let key = |name: &str| format!("{prefix}ssl.{name}");
    let trust = key("truststore.location");
    for store in ["truststore", "keystore"] {
        let option = key(&format!("{store}.type"));
        let kind = options.text(&option);
        let kind = kind.map(str::to_ascii_uppercase);
        let place = key(&format!("{store}.location"));
        let location = options.text(&place);
        let java = location
            .is_some_and(|path| [".jks", ".p12", ".pfx"].iter().any(|end| path.ends_with(end)));
        if kind.as_deref().is_some_and(|kind| kind != "PEM") || java {
            return Err(options.error(
                if java { &place } else { &option },
                "expected certificates in PEM, found a store of Java's".into(),
                "convert it: keytool -importkeystore … -deststoretype PKCS12, then \
                 openssl pkcs12 -in … -out certificates.pem",
            ));
        }
    }
    let read = |option: &str| {
        let Some(path) = options.text(option) else { return Ok(None) };
        let found = std::fs::read(table.base_dir.join(path));
        let wrong = |error: std::io::Error| options.error(option, format!("'{path}': {error}"), "");
        found.map(Some).map_err(wrong)
    };
    let text = |name: &str| options.text(&key(name)).map(|text| text.as_bytes().to_vec());
    pems.trusted = match text("truststore.certificates") {
        Some(pem) => Some(pem),
        None => match read(&trust)? {
            Some(pem) => Some(pem),
            None => read(&key("ca.location"))?,
        },
    };
    pems.own = match (text("keystore.certificate.chain"), text("keystore.key")) {
        (Some(chain), Some(key)) => Some((chain, key)),
        (None, None) => {
            let both = read(&key("keystore.location"))?;
            both.map(|both| (both.clone(), both))
        }
        _ => {
            return Err(options.error(
                &key("keystore.key"),
                "a certificate and its key belong together".into(),
                "give 'ssl.keystore.certificate.chain' and 'ssl.keystore.key'",
            ));
        }
    };
    if let Some(algorithm) = options.text(&key("endpoint.identification.algorithm"))
        && !algorithm.eq_ignore_ascii_case("https")
    {
        return Err(options.error(
            &key("endpoint.identification.algorithm"),
            "the name of a host is always compared with its certificate".into(),
            "leave the option out, and name the host as its certificate does",
        ));
    }
    Tls::new(&pems).map_err(|message| options.error(&trust, message, "expected files in PEM"))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;

    use super::*;

    /// The error of a property, beside others.
    fn said(name: &str, value: &str, others: &[(&str, &str)]) -> String {
        let key = format!("{PREFIX}{name}");
        let options: Vec<(&str, &str)> =
            others.iter().copied().chain([(key.as_str(), value)]).collect();
        let table = crate::tests::table(&[("v", DataType::Binary)], &options);
        let found = ClientSettings::from_options(&table, &Options::new(&table));
        let error = found.map(drop).unwrap_err().to_string();
        assert!(error.contains(&key), "{error}");
        error
    }

    #[test]
    fn properties_that_do_not_work_say_what_to_do() {
        for name in ["sasl.mechanism", "sasl.username", "sasl.kerberos.service.name"] {
            assert!(said(name, "x", &[]).contains("to SASL_SSL or SASL_PLAINTEXT"));
        }
        assert!(said("ssl.truststore.location", "x", &[]).contains("to SSL or SASL_SSL"));
        let named = [
            ("properties.security.protocol", "SASL_PLAINTEXT"),
            ("properties.sasl.username", "me"),
            ("properties.sasl.password", "x"),
        ];
        assert!(said("sasl.kerberos.service.name", "x", &named).contains("Kerberos"));
        let encrypted = [("properties.security.protocol", "SSL")];
        assert!(said("ssl.keystore.location", "k.jks", &encrypted).contains("keytool"));
    }

    #[test]
    fn properties_of_java_without_effect_are_accepted() {
        let options = [("properties.client.rack", "a"), ("properties.default.api.timeout.ms", "1")];
        let table = crate::tests::table(&[("v", DataType::Binary)], &options);
        ClientSettings::from_options(&table, &Options::new(&table)).unwrap();
    }

    #[test]
    fn addresses() {
        let shown = |text| address(text).map(|address| address.to_string());
        assert_eq!(shown("a:1"), Some("a:1".into()));
        assert_eq!(shown("SASL_SSL://a.b:9093"), Some("a.b:9093".into()));
        assert_eq!(shown("[::1]:9092"), Some("[::1]:9092".into()));
        for wrong in ["", "a", "a:", ":1", "a:0", "a:65536", "a:x"] {
            assert_eq!(shown(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn values_of_jaas() {
        let jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required \
                    username=\"it's \\\"me\\\"\" password='a b';";
        assert_eq!(jaas_value(jaas, "username").as_deref(), Some("it's \"me\""));
        assert_eq!(jaas_value(jaas, "password").as_deref(), Some("a b"));
        let jaas = "PlainLoginModule required username=me@x password = a!b;";
        assert_eq!(jaas_value(jaas, "username").as_deref(), Some("me@x"));
        assert_eq!(jaas_value(jaas, "password").as_deref(), Some("a!b"));
        // To Java a slash begins a comment.
        let wrong = ["", "username", "username=x", "username=;", "username=a/b;", "username=a=b;"];
        for wrong in wrong.into_iter().chain(["username=\"x", "myusername=\"x\"", "username=a'b';"])
        {
            assert_eq!(jaas_value(wrong, "username"), None, "{wrong}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let user = User {
            mechanism: Mechanism::Plain,
            name: "me".into(),
            password: Secret("topsecret".into()),
        };
        assert!(!format!("{user:?}").contains("topsecret"));
    }
}
