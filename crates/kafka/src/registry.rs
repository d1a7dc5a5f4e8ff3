//! A registry of schemas, which speaks as Confluent's does: JSON over HTTP.
//!
//! | request | answer |
//! |---|---|
//! | `GET /schemas/ids/N` | the schema with this number |
//! | `POST /subjects/S/versions` | the number of a schema, which is registered if it is new |
//! | `POST /subjects/S` | the number of a schema that is registered |
//!
//! A number's schema never changes, so a number is asked for once, by the worker that meets it
//! first. A registry that goes away while a job runs is asked again for a while.

use std::collections::HashMap;
use std::error::Error as _;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use millstream_connect::Options;
use millstream_connect::messages::SchemaRegistry;
use millstream_contract::table::TableOptions;
use millstream_contract::{Error, Result};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Method, StatusCode, Url};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use crate::client::settings::tls;

/// A request without an answer is given up after this time.
const ANSWER: Duration = Duration::from_secs(4);
/// A registry that was there before is asked again for so long, so often.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(500);
/// An unknown number is asked for again after this time.
const UNKNOWN: Duration = Duration::from_secs(10);
/// Unknown numbers that are remembered: garbage may name any.
const UNKNOWN_MAX: usize = 10_000;
/// Bytes of an answer; a schema is much smaller.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// The content type of requests and answers.
const CONTENT: &str = "application/vnd.schemaregistry.v1+json";

/// A registry, and the subject under which a table's schema is registered.
pub(crate) struct Registry {
    url: Url,
    /// The URL, for messages.
    place: String,
    subject: String,
    /// Whether unknown schemas are registered.
    registers: bool,
    authorization: Option<HeaderValue>,
    client: Client,
    runtime: Runtime,
    /// Prefix of the registry's options.
    prefix: String,
    known: Mutex<HashMap<u32, Arc<str>>>,
    /// Numbers unknown to the registry, with the time of the question.
    unknown: Mutex<HashMap<u32, Instant>>,
    /// Held while it is asked for a number.
    asking: Mutex<()>,
    /// When it answered first.
    answered: Mutex<Option<Instant>>,
    news: Mutex<Option<String>>,
}

/// Hides passwords and tokens.
impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("place", &self.place).finish_non_exhaustive()
    }
}

/// Why there is no answer.
enum Fault {
    /// The registry may answer later.
    Away(String),
    Refused(String, String),
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    /// From the options that begin with `prefix`, for example `value.avro-confluent.`. `subject` is
    /// the default subject.
    pub(crate) fn from_options(
        table: &TableOptions,
        options: &Options<'_>,
        prefix: &str,
        subject: String,
    ) -> Result<Registry> {
        let key = |name: &str| format!("{prefix}{name}");
        // Names of older versions of Flink.
        let text = |name: &str| {
            options.text(&key(name)).or(options.text(&key(&format!("schema-registry.{name}"))))
        };
        let Some(given) = text("url") else {
            let message = "the format needs a registry of schemas".to_string();
            let help = format!("write '{prefix}url' = 'http://localhost:8081' among the options");
            return Err(options.error(&key("url"), message, help));
        };
        let parsed = Url::parse(given.trim()).ok();
        let parsed = parsed.filter(|url| {
            ["http", "https"].contains(&url.scheme()) && url.has_host() && !given.contains(',')
        });
        let Some(url) = parsed.filter(|url| url.username().is_empty() && url.password().is_none())
        else {
            let message = "expected the URL of a registry of schemas".to_string();
            let help = format!(
                "one URL, for example http://localhost:8081; name and password stand in \
                 '{prefix}basic-auth.user-info'"
            );
            return Err(options.error(&key("url"), message, help));
        };
        let authorization = authorization(options, prefix)?;
        if let Some(name) = table.options.keys().find(|name| name.starts_with(&key("properties"))) {
            let message = "properties of Confluent's client do not run here".to_string();
            return Err(options.error(name, message, "use the options of the format"));
        }
        let registers = key("auto.register.schemas");
        let registers = options.text(&registers).is_none() || options.flag(&registers)?;
        let wrong = |error: &dyn fmt::Display| {
            options.error(&key("url"), format!("no client of HTTP: {error}"), "")
        };
        let mut client = Client::builder().timeout(ANSWER).connect_timeout(ANSWER);
        if url.scheme() == "https" {
            client = client.use_preconfigured_tls(tls(table, options, prefix)?.config());
        }
        let runtime = Builder::new_current_thread().enable_all().build();
        Ok(Registry {
            place: url.as_str().trim_end_matches('/').to_string(),
            url,
            subject: text("subject").map_or(subject, str::to_string),
            registers,
            authorization,
            client: client.build().map_err(|error| wrong(&error))?,
            runtime: runtime.map_err(|error| wrong(&error))?,
            prefix: prefix.to_string(),
            known: Mutex::default(),
            unknown: Mutex::default(),
            asking: Mutex::default(),
            answered: Mutex::default(),
            news: Mutex::default(),
        })
    }

    /// Asks once. The answer is a status and JSON.
    fn ask(
        &self,
        path: &[&str],
        body: Option<&Value>,
    ) -> std::result::Result<(StatusCode, Value), Fault> {
        let mut url = self.url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let mut request = self.client.request(method, url).header(ACCEPT, CONTENT);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, CONTENT).body(body.to_string());
        }
        let answer = self.runtime.block_on(async {
            let mut answer = request.send().await?;
            let mut bytes = Vec::new();
            while let Some(chunk) = answer.chunk().await? {
                bytes.extend_from_slice(&chunk);
                if bytes.len() > ANSWER_BYTES_MAX {
                    break;
                }
            }
            Ok::<_, reqwest::Error>((answer.status(), bytes))
        });
        let (status, bytes) = answer.map_err(|error| Fault::Away(reason(&error)))?;
        if bytes.len() > ANSWER_BYTES_MAX {
            let message = format!("expected a schema, found more than {ANSWER_BYTES_MAX} bytes");
            return Err(Fault::Refused(message, format!("check '{}url'", self.prefix)));
        }
        let answer: Option<Value> = serde_json::from_slice(&bytes).ok();
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            return Err(Fault::Away(format!("it answers {status}{}", said(answer.as_ref()))));
        }
        lock(&self.answered).get_or_insert_with(Instant::now);
        if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
            let prefix = &self.prefix;
            return Err(Fault::Refused(
                format!("it refuses us: {status}{}", said(answer.as_ref())),
                format!(
                    "check '{prefix}basic-auth.user-info' (NAME:PASSWORD) or \
                     '{prefix}bearer-auth.token'"
                ),
            ));
        }
        match answer {
            Some(answer) => Ok((status, answer)),
            None => Err(Fault::Refused(
                format!("expected a registry of schemas, found something else: {status}"),
                format!("check '{}url'", self.prefix),
            )),
        }
    }

    /// Asks until there is an answer, or for [`PATIENCE`]; a registry that never answered is asked
    /// once.
    fn ask_patiently(&self, path: &[&str], body: Option<&Value>) -> Result<(StatusCode, Value)> {
        let (began, was_there) = (Instant::now(), lock(&self.answered).is_some());
        let mut noticed = false;
        loop {
            match self.ask(path, body) {
                Ok(answer) => return Ok(answer),
                Err(Fault::Away(why)) if was_there && began.elapsed() < PATIENCE => {
                    if !noticed {
                        let text = format!("registry {}: {why}; trying again", self.place);
                        tracing::warn!("{text}");
                        *lock(&self.news) = Some(text);
                        noticed = true;
                    }
                    sleep(PAUSE);
                }
                Err(fault) => return Err(self.error(fault)),
            }
        }
    }

    fn note_unknown(&self, number: u32) {
        let mut unknown = lock(&self.unknown);
        if unknown.len() >= UNKNOWN_MAX {
            unknown.clear();
        }
        unknown.insert(number, Instant::now());
    }

    fn error(&self, fault: Fault) -> Error {
        let (message, help) = match fault {
            Fault::Refused(message, help) => (message, help),
            Fault::Away(message) => {
                (message, format!("check '{}url', and whether the registry runs", self.prefix))
            }
        };
        Error::Io { place: format!("registry {}", self.place), message, help }
    }

    fn refused(&self, what: &str, status: StatusCode, answer: &Value, help: &str) -> Error {
        self.error(Fault::Refused(
            format!("{what}: {status}{}", said(Some(answer))),
            help.to_string(),
        ))
    }
}

impl SchemaRegistry for Registry {
    fn check(&self) -> Result<()> {
        match self.ask(&["schemas", "types"], None) {
            // Some registries answer that they do not have this address.
            Ok(_) => Ok(()),
            Err(fault) => Err(self.error(fault)),
        }
    }

    fn schema(&self, number: u32) -> Result<Option<Arc<str>>> {
        let asking = lock(&self.asking);
        if let Some(schema) = lock(&self.known).get(&number) {
            return Ok(Some(schema.clone()));
        }
        let asked = lock(&self.unknown).get(&number).copied();
        if asked.is_some_and(|at| at.elapsed() < UNKNOWN) {
            return Ok(None);
        }
        let (status, answer) =
            self.ask_patiently(&["schemas", "ids", &number.to_string()], None)?;
        drop(asking);
        if status == StatusCode::NOT_FOUND {
            self.note_unknown(number);
            return Ok(None);
        }
        let is_avro = answer["schemaType"].as_str().is_none_or(|kind| kind == "AVRO");
        match answer["schema"].as_str() {
            Some(schema) if status.is_success() && is_avro => {
                let schema: Arc<str> = schema.into();
                lock(&self.known).insert(number, schema.clone());
                Ok(Some(schema))
            }
            _ => {
                let what = format!("schema {number} is no schema of Avro");
                Err(self.refused(&what, status, &answer, "check the registry's URL"))
            }
        }
    }

    fn register(&self, schema: &str) -> Result<u32> {
        let path = ["subjects", &self.subject, "versions"];
        let path = if self.registers { &path[..] } else { &path[..2] };
        let (status, answer) = self.ask_patiently(path, Some(&json!({"schema": schema})))?;
        let number = answer["id"].as_u64().and_then(|number| u32::try_from(number).ok());
        match number.filter(|_| status.is_success()) {
            Some(number) => Ok(number),
            None => {
                let what = format!("the subject '{}' does not take the schema", self.subject);
                let help = match (self.registers, status) {
                    (false, _) => "register the schema, or leave 'auto.register.schemas' out",
                    (_, StatusCode::CONFLICT) => {
                        "the table's columns are not compatible with an earlier schema: change \
                         them, the option 'subject', or the subject's compatibility"
                    }
                    _ => "",
                };
                Err(self.refused(&what, status, &answer, help))
            }
        }
    }

    fn place(&self) -> &str {
        &self.place
    }

    fn news(&self) -> Option<String> {
        lock(&self.news).take()
    }
}

/// How we say who we are: by name and password, or by a token.
fn authorization(options: &Options<'_>, prefix: &str) -> Result<Option<HeaderValue>> {
    let key = |name: &str| format!("{prefix}{name}");
    let basic = options.text(&key("basic-auth.user-info"));
    let token = options.text(&key("bearer-auth.token"));
    let source = key("basic-auth.credentials-source");
    options.parsed(&source, "'USER_INFO', with 'basic-auth.user-info'", |text| {
        (text.trim() == "USER_INFO" && basic.is_some()).then_some(())
    })?;
    let source = key("bearer-auth.credentials-source");
    options.parsed(&source, "'STATIC_TOKEN', with 'bearer-auth.token'", |text| {
        (text.trim() == "STATIC_TOKEN" && token.is_some()).then_some(())
    })?;
    let value = match (basic, token) {
        (Some(_), Some(_)) => {
            let message = "a password and a token are given".to_string();
            return Err(options.error(&key("bearer-auth.token"), message, "leave one out"));
        }
        (Some(user), None) if user.contains(':') => {
            format!("Basic {}", BASE64_STANDARD.encode(user))
        }
        (Some(_), None) => {
            let message = "expected NAME:PASSWORD".to_string();
            return Err(options.error(&key("basic-auth.user-info"), message, ""));
        }
        (None, Some(token)) => format!("Bearer {}", token.trim()),
        (None, None) => return Ok(None),
    };
    let value = HeaderValue::from_str(&value).map(|mut value| {
        value.set_sensitive(true);
        value
    });
    value.map(Some).map_err(|_| {
        let message = "a token is one line of ASCII".to_string();
        options.error(&key("bearer-auth.token"), message, "")
    })
}

/// The message in an answer.
fn said(answer: Option<&Value>) -> String {
    let message = answer.and_then(|answer| answer["message"].as_str());
    message.map_or(String::new(), |text| format!(" ({})", text.escape_debug()))
}

/// The innermost cause of a failed request, without the URL.
fn reason(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer in time".into();
    }
    let mut source = error.source();
    while let Some(inner) = source.and_then(std::error::Error::source) {
        source = Some(inner);
    }
    match source {
        Some(source) => format!("no answer: {source}"),
        None => "no answer".into(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use arrow::datatypes::DataType;

    use super::*;

    fn registry(url: &str) -> Registry {
        let table = crate::tests::table(&[("v", DataType::Utf8)], &[("avro-confluent.url", url)]);
        let options = Options::new(&table);
        Registry::from_options(&table, &options, "avro-confluent.", "t-value".into()).unwrap()
    }

    #[test]
    fn numbers_in_garbage_do_not_fill_the_memory() {
        let registry = registry("http://localhost:1");
        (0..3 * UNKNOWN_MAX as u32).for_each(|number| registry.note_unknown(number));
        assert!(lock(&registry.unknown).len() <= UNKNOWN_MAX);
    }

    #[test]
    fn an_answer_without_an_end_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut peer, _) = listener.accept().unwrap();
            let _bytes = peer.read(&mut [0; 4_096]).unwrap();
            peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n").unwrap();
            while peer.write_all(&[b' '; 1 << 16]).is_ok() {}
        });
        let error = registry(&format!("http://127.0.0.1:{port}")).check().unwrap_err().to_string();
        assert!(error.contains("more than 16777216 bytes"), "{error}");
    }
}
