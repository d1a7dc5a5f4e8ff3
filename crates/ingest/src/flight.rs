//! Arrow Flight: producers call `DoPut`.
//!
//! The descriptor of the first message is a path of one element, the table's name. The stream then
//! has a schema, dictionaries and record batches. A message's `app_metadata` may be a watermark:
//! eight bytes, little-endian, microseconds of event time; it counts behind the message's records,
//! or alone. At the end the answer is one `PutResult`, whose `app_metadata` is the number of rows
//! that the job has taken, as decimal digits. All of them have been decoded then.
//!
//! `GetSchema` answers with the schema of a table. Other calls are refused.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, SchemaAsIpc, SchemaResult, Ticket,
};
use futures_core::Stream;
use millstream_connect::{ArrowBatch, ArrowMessage, ArrowMessages};
use millstream_contract::Error;
use tokio::sync::oneshot;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::served::{Served, check_name};
use crate::slots::{Refused, Sender};

/// How long clients have to read their answers when the last table of a server has gone.
const GRACE: Duration = Duration::from_secs(1);
/// Name under which a producer presents its own name.
const PRODUCER: &str = "millstream-producer";

type Tables = Arc<Mutex<BTreeMap<String, Served>>>;

/// A thread that listens at an address, for all tables of this address.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    tables: Tables,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// By address as it was asked for.
static SERVERS: LazyLock<Mutex<BTreeMap<SocketAddr, Weak<Server>>>> = LazyLock::new(Mutex::default);

impl Server {
    /// The server of an address, which serves a table from now on.
    pub(crate) fn of(asked: SocketAddr, name: &str, served: Served) -> io::Result<Arc<Server>> {
        let mut servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|_, server| server.strong_count() > 0);
        let known = servers.get(&asked).and_then(Weak::upgrade).filter(|_| asked.port() != 0);
        let server = match known {
            Some(server) => server,
            None => {
                let server = Arc::new(Server::start(asked, served.message_bytes_max)?);
                servers.insert(asked, Arc::downgrade(&server));
                server
            }
        };
        let mut tables = server.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if tables.contains_key(name) {
            let message = format!("two tables of {asked} have the name '{name}': give one another");
            return Err(io::Error::new(io::ErrorKind::AddrInUse, message));
        }
        tables.insert(name.to_string(), served);
        drop(tables);
        Ok(server)
    }

    fn start(asked: SocketAddr, message_bytes_max: u64) -> io::Result<Server> {
        let listener = TcpListener::bind(asked)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let tables = Tables::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let bytes_max = usize::try_from(message_bytes_max).unwrap_or(usize::MAX);
        let service = FlightServiceServer::new(Service { tables: tables.clone() })
            .max_decoding_message_size(bytes_max);
        let thread = std::thread::Builder::new().name("flight".into()).spawn(move || {
            if let Err(error) = runtime.block_on(serve(listener, service, stopped)) {
                tracing::error!(%error, "Arrow Flight cannot be served any more");
            }
        })?;
        Ok(Server { address, tables, stop: Some(stop), thread: Some(thread) })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves a table no more.
    pub(crate) fn remove(&self, name: &str) {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has been told.
            let _ = thread.join();
        }
    }
}

/// Serves until `stopped`, and then until all answers have been sent, or for a short time.
async fn serve(
    listener: TcpListener,
    service: FlightServiceServer<Service>,
    stopped: oneshot::Receiver<()>,
) -> Result<(), Box<dyn std::error::Error>> {
    let incoming = TcpIncoming::from(tokio::net::TcpListener::from_std(listener)?);
    let (ends, ended) = oneshot::channel::<()>();
    let serving = tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(Duration::from_secs(10)))
        .http2_keepalive_timeout(Some(Duration::from_secs(20)))
        .tcp_nodelay(true)
        .add_service(service)
        .serve_with_incoming_shutdown(incoming, async { drop(ended.await) });
    let stops = async {
        let _ = stopped.await;
        drop(ends);
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        served = serving => Ok(served?),
        () = stops => Ok(()),
    }
}

/// The service of all tables of an address.
struct Service {
    tables: Tables,
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// A stream of one answer.
struct Once<T>(Option<T>);

impl<T: Unpin> Stream for Once<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.take().map(Ok))
    }
}

impl Service {
    /// The table that a descriptor names.
    fn table(&self, descriptor: Option<FlightDescriptor>) -> Result<(String, Served), Status> {
        let path = descriptor.map(|descriptor| descriptor.path).unwrap_or_default();
        let tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let names = || tables.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let [name] = &path[..] else {
            let message = "the descriptor of the first message has to be a path of one element";
            return Err(Status::invalid_argument(format!("{message}, one of {}", names())));
        };
        let unknown = || Status::not_found(format!("no table '{name}': there is {}", names()));
        let served = tables.get(name).ok_or_else(unknown)?;
        Ok((name.clone(), served.clone()))
    }

    /// Refuses a call that no table admits, before any message of it is read.
    fn check_token(&self, presented: Option<&str>) -> Result<(), Status> {
        let tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if tables.is_empty() || tables.values().any(|served| served.admits(presented)) {
            return Ok(());
        }
        Err(other_token(&tables.keys().map(String::as_str).collect::<Vec<_>>().join("', '")))
    }

    /// Takes in the stream of a producer, up to its end. Returns how many rows the job has taken.
    async fn put(&self, request: Request<Streaming<FlightData>>) -> Result<u64, Status> {
        let presented = presented(&request)?;
        self.check_token(presented.as_deref())?;
        let producer = producer(&request)?;
        let mut messages = request.into_inner();
        let Some(first) = messages.message().await? else {
            return Err(Status::invalid_argument("a stream without a schema"));
        };
        let (name, served) = self.table(first.flight_descriptor)?;
        if !served.admits(presented.as_deref()) {
            return Err(other_token(&name));
        }
        let place = format!("channel {name}, producer {producer}");
        let mut arrived =
            served.messages(&place, first.data_header).map_err(|error| of_data(&error))?;
        let mut sender = served.slots.join(&producer).map_err(refused)?;
        sender.begin(false).map_err(refused)?;
        while let Some(message) = next_with_room(&mut sender, &mut messages).await? {
            let taken = taken(&place, &mut arrived, message);
            let (batch, watermark) = taken.inspect_err(|fault| sender.blame(fault.message()))?;
            sender.send(batch, watermark).map_err(refused)?;
        }
        // A call that the client cancels looks like the end of its stream. The server drops this
        // future when the future waits next.
        tokio::task::yield_now().await;
        sender.settled().await;
        sender.end().map_err(refused)
    }
}

fn other_token(tables: &str) -> Status {
    let message = format!("table '{tables}' has a token: send 'authorization: Bearer TOKEN'");
    Status::unauthenticated(message)
}

/// The record batch and the watermark of a message.
fn taken(
    place: &str,
    arrived: &mut ArrowMessages,
    message: FlightData,
) -> Result<(Option<ArrowBatch>, Option<i64>), Status> {
    let watermark = watermark(place, &message.app_metadata)?;
    if message.data_header.is_empty() {
        return Ok((None, watermark));
    }
    let fault = |why: String| Status::invalid_argument(format!("{place}: {why}"));
    let metadata = ArrowMessage::new(message.data_header).map_err(fault)?;
    let batch = arrived.take(metadata, message.data_body).map_err(|error| of_data(&error))?;
    Ok((batch, watermark))
}

/// The next message of a stream, once its slot has room; `None` at the end of the stream.
async fn next_with_room(
    sender: &mut Sender,
    messages: &mut Streaming<FlightData>,
) -> Result<Option<FlightData>, Status> {
    std::future::poll_fn(|context| match sender.has_room(context.waker()) {
        Ok(true) => Poll::Ready(Ok(())),
        Ok(false) => Poll::Pending,
        Err(why) => Poll::Ready(Err(refused(why))),
    })
    .await?;
    let next = messages.message().await;
    next.inspect_err(|status| {
        // The message is too long. Other codes mean a broken connection.
        if status.code() == Code::OutOfRange {
            sender.blame(status.message());
        }
    })
}

/// The token that a request presents.
fn presented<T>(request: &Request<T>) -> Result<Option<String>, Status> {
    let Some(value) = request.metadata().get("authorization") else { return Ok(None) };
    let text = value.to_str().ok().and_then(|text| text.strip_prefix("Bearer "));
    let malformed = || Status::unauthenticated("'authorization' is not 'Bearer TOKEN'");
    text.map(|text| Some(text.to_string())).ok_or_else(malformed)
}

/// The name of a producer in messages. Without a name, the address.
fn producer<T>(request: &Request<T>) -> Result<String, Status> {
    let from = request.remote_addr().map_or_else(|| "?".to_string(), |from| from.to_string());
    let Some(value) = request.metadata().get(PRODUCER) else { return Ok(from) };
    let name = value.to_str().map_err(|_| "no ASCII".to_string()).and_then(check_name);
    let name = name.map_err(|why| Status::invalid_argument(format!("'{PRODUCER}': {why}")))?;
    Ok(format!("{name} ({from})"))
}

/// The watermark in a message's metadata, if there is one.
fn watermark(place: &str, metadata: &[u8]) -> Result<Option<i64>, Status> {
    match metadata.len() {
        0 => Ok(None),
        8 => Ok(metadata.first_chunk().map(|bytes| i64::from_le_bytes(*bytes))),
        bytes => Err(Status::invalid_argument(format!(
            "{place}: app_metadata has {bytes} bytes: a watermark has 8, microseconds of event \
             time, little-endian"
        ))),
    }
}

fn of_data(error: &Error) -> Status {
    Status::invalid_argument(error.to_string())
}

fn refused(why: Refused) -> Status {
    match why {
        Refused::Full(message) => Status::resource_exhausted(message),
        Refused::Over(message) => Status::unavailable(message),
        Refused::Damaged(error) => of_data(&error),
    }
}

fn unsupported<T>(call: &str) -> Result<T, Status> {
    Err(Status::unimplemented(format!(
        "{call} is not there: producers call DoPut, and GetSchema tells a table's columns"
    )))
}

#[tonic::async_trait]
impl FlightService for Service {
    type HandshakeStream = Answers<HandshakeResponse>;
    type ListFlightsStream = Answers<FlightInfo>;
    type DoGetStream = Answers<FlightData>;
    type DoPutStream = Answers<PutResult>;
    type DoExchangeStream = Answers<FlightData>;
    type DoActionStream = Answers<arrow_flight::Result>;
    type ListActionsStream = Answers<ActionType>;

    async fn do_put(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoPutStream>, Status> {
        let rows = self.put(request).await?;
        let result = PutResult { app_metadata: rows.to_string().into() };
        Ok(Response::new(Box::pin(Once(Some(result)))))
    }

    async fn get_schema(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<SchemaResult>, Status> {
        let (_, served) = self.table(Some(request.into_inner()))?;
        let options = arrow::ipc::writer::IpcWriteOptions::default();
        let schema = SchemaAsIpc::new(&served.schema, &options);
        let result = SchemaResult::try_from(schema);
        result.map(Response::new).map_err(|error| Status::internal(error.to_string()))
    }

    async fn handshake(
        &self,
        _: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        unsupported("Handshake")
    }

    async fn list_flights(
        &self,
        _: Request<Criteria>,
    ) -> Result<Response<Self::ListFlightsStream>, Status> {
        unsupported("ListFlights")
    }

    async fn get_flight_info(
        &self,
        _: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        unsupported("GetFlightInfo")
    }

    async fn poll_flight_info(
        &self,
        _: Request<FlightDescriptor>,
    ) -> Result<Response<PollInfo>, Status> {
        unsupported("PollFlightInfo")
    }

    async fn do_get(&self, _: Request<Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        unsupported("DoGet")
    }

    async fn do_exchange(
        &self,
        _: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        unsupported("DoExchange")
    }

    async fn do_action(
        &self,
        _: Request<Action>,
    ) -> Result<Response<Self::DoActionStream>, Status> {
        unsupported("DoAction")
    }

    async fn list_actions(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<Self::ListActionsStream>, Status> {
        unsupported("ListActions")
    }
}
