//! A connection to one broker: a request, then its response.
//!
//! The layout of messages is the library's (`kafka-protocol`). Here are frames, versions and
//! time-outs.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse, ApiKey, ApiVersionsRequest, ApiVersionsResponse,
    DescribeConfigsRequest, DescribeConfigsResponse, DescribeTransactionsRequest,
    DescribeTransactionsResponse, EndTxnRequest, EndTxnResponse, FetchRequest, FetchResponse,
    FindCoordinatorRequest, FindCoordinatorResponse, InitProducerIdRequest, InitProducerIdResponse,
    ListOffsetsRequest, ListOffsetsResponse, MetadataRequest, MetadataResponse,
    OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse,
    ProduceRequest, ProduceResponse, RequestHeader, ResponseHeader, SaslAuthenticateRequest,
    SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse, TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Message, StrBytes};

use super::address::Address;
use super::away::Away;
use super::counted::Counted;
use super::fault::{Fault, Outcome, error_of};
use super::settings::ClientSettings;

/// A frame of a broker is smaller; what begins otherwise is no Kafka.
const FRAME_BYTES_MAX: usize = 512 << 20;
/// Interval between looks whether the job is to end, while an answer is awaited.
const LOOK: Duration = Duration::from_millis(500);
/// Bytes read at once.
const STEP_BYTES: usize = 4 << 20;

/// A request, and its response. (The library has the like for those who also read requests.)
pub(crate) trait Request: Encodable + Message + HeaderVersion {
    const KIND: ApiKey;
    type Response: Decodable + HeaderVersion;
}

macro_rules! requests {
    ($($kind:ident $request:ident $response:ident,)*) => {
        $(impl Request for $request {
            const KIND: ApiKey = ApiKey::$kind;
            type Response = $response;
        })*
    };
}

requests! {
    AddOffsetsToTxn AddOffsetsToTxnRequest AddOffsetsToTxnResponse,
    AddPartitionsToTxn AddPartitionsToTxnRequest AddPartitionsToTxnResponse,
    ApiVersions ApiVersionsRequest ApiVersionsResponse,
    DescribeConfigs DescribeConfigsRequest DescribeConfigsResponse,
    DescribeTransactions DescribeTransactionsRequest DescribeTransactionsResponse,
    EndTxn EndTxnRequest EndTxnResponse,
    Fetch FetchRequest FetchResponse,
    FindCoordinator FindCoordinatorRequest FindCoordinatorResponse,
    InitProducerId InitProducerIdRequest InitProducerIdResponse,
    ListOffsets ListOffsetsRequest ListOffsetsResponse,
    Metadata MetadataRequest MetadataResponse,
    OffsetCommit OffsetCommitRequest OffsetCommitResponse,
    OffsetFetch OffsetFetchRequest OffsetFetchResponse,
    Produce ProduceRequest ProduceResponse,
    SaslAuthenticate SaslAuthenticateRequest SaslAuthenticateResponse,
    SaslHandshake SaslHandshakeRequest SaslHandshakeResponse,
    TxnOffsetCommit TxnOffsetCommitRequest TxnOffsetCommitResponse,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<rustls::StreamOwned<rustls::ClientConnection, TcpStream>>),
}

impl Stream {
    fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => &stream.sock,
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Plain(socket) => socket.write_all(bytes),
            Stream::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read(into),
            Stream::Tls(stream) => stream.read(into),
        }
    }
}

/// A connection to a broker.
pub(crate) struct Connection {
    address: Address,
    stream: Stream,
    client_id: StrBytes,
    /// By the key of a request, the versions that the broker knows.
    versions: BTreeMap<i16, (i16, i16)>,
    /// Whether transactions have version 2 (KIP-890).
    second_transactions: bool,
    correlation: i32,
    request_timeout: Duration,
    /// The end of the session's start, while it starts: a peer may be silent that is no broker.
    starts_until: Option<Instant>,
    away: Option<Arc<Away>>,
}

impl Connection {
    /// Connects, and asks for the versions that the broker knows.
    pub(super) fn connect(address: &Address, settings: &ClientSettings) -> Outcome<Connection> {
        let end = Instant::now() + settings.connect_timeout;
        let socket = connect(address, end)?;
        let failed = |error: io::Error| Fault::io(address, &error);
        socket.set_nodelay(true).map_err(failed)?;
        socket.set_read_timeout(Some(settings.connect_timeout)).map_err(failed)?;
        socket.set_write_timeout(Some(settings.request_timeout)).map_err(failed)?;
        let stream = match &settings.tls {
            None => Stream::Plain(socket),
            Some(tls) => Stream::Tls(Box::new(tls.connect(address, socket)?)),
        };
        let mut connection = Connection {
            address: address.clone(),
            stream,
            client_id: StrBytes::from_string(settings.client_id.clone()),
            versions: BTreeMap::new(),
            second_transactions: false,
            correlation: 0,
            request_timeout: settings.request_timeout,
            starts_until: Some(end),
            away: settings.away.clone(),
        };
        connection.ask_versions(settings)?;
        Ok(connection)
    }

    /// The session has started.
    pub(super) fn note_start(&mut self) {
        self.starts_until = None;
    }

    pub(crate) fn has_second_transactions(&self) -> bool {
        self.second_transactions
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// The versions of requests that the broker knows: the first message of any session.
    fn ask_versions(&mut self, settings: &ClientSettings) -> Outcome<()> {
        let request = ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str("millstream"))
            .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")));
        let mut version = 3;
        let response = loop {
            let body = self
                .exchange(&request, version, Duration::ZERO)
                .map_err(|fault| fault.at_first_message(settings.tls.is_some()))?;
            // A broker that does not know the version answers in the first.
            let unknown = body.get(..2) == Some(&35i16.to_be_bytes()[..]);
            if unknown && version > 0 {
                version = 0;
                continue;
            }
            break ApiVersionsResponse::decode(&mut Counted(body), version)
                .map_err(|error| Fault::no_kafka(&self.address, &error))?;
        };
        if let Some(error) = error_of(response.error_code) {
            return Err(Fault::broker(&self.address, "its versions", error));
        }
        let mut features = response.finalized_features.iter();
        self.second_transactions = features.any(|feature| {
            *feature.name == *"transaction.version" && feature.max_version_level >= 2
        });
        let versions = response.api_keys.iter();
        self.versions =
            versions.map(|api| (api.api_key, (api.min_version, api.max_version))).collect();
        Ok(())
    }

    /// The version of this request that both sides know, `highest` at most.
    pub(crate) fn version_of<R: Request>(&self, highest: i16) -> Outcome<i16> {
        let (min, max) = (R::VERSIONS.min, R::VERSIONS.max.min(highest));
        let known = self.versions.get(&(R::KIND as i16)).copied();
        let (broker_min, broker_max) = known.unwrap_or((0, -1));
        let version = max.min(broker_max);
        if version < min.max(broker_min) {
            let kind = R::KIND;
            return Err(Fault::Fatal {
                place: format!("broker {}", self.address),
                message: format!(
                    "expected a broker that knows {kind:?} in a version from {min} to {max}, found \
                     one with versions from {broker_min} to {broker_max}"
                ),
                help: "brokers from Apache Kafka 2.1 on can be read".into(),
            });
        }
        Ok(version)
    }

    /// Sends a request in the highest common version, and waits for the response.
    pub(crate) fn call<R: Request>(&mut self, request: &R) -> Outcome<R::Response> {
        let version = self.version_of::<R>(i16::MAX)?;
        self.call_in(request, version, Duration::ZERO)
    }

    /// Sends a request in this version, and waits for the response, which may take so much longer
    /// than responses usually do.
    pub(crate) fn call_in<R: Request>(
        &mut self,
        request: &R,
        version: i16,
        longer: Duration,
    ) -> Outcome<R::Response> {
        let body = self.exchange(request, version, longer)?;
        R::Response::decode(&mut Counted(body), version).map_err(|error| {
            Fault::retry(format!("broker {}: a response cannot be read: {error}", self.address))
        })
    }

    /// Sends a request; the response's bytes behind the header.
    fn exchange<R: Request>(
        &mut self,
        request: &R,
        version: i16,
        longer: Duration,
    ) -> Outcome<Bytes> {
        self.correlation = self.correlation.wrapping_add(1);
        let header = RequestHeader::default()
            .with_request_api_key(R::KIND as i16)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation)
            .with_client_id(Some(self.client_id.clone()));
        let mut frame = BytesMut::with_capacity(256);
        frame.put_i32(0);
        let written = header
            .encode(&mut frame, R::header_version(version))
            .and_then(|()| request.encode(&mut frame, version));
        written
            .map_err(|error| Fault::internal(format!("a request cannot be written: {error}")))?;
        let length = i32::try_from(frame.len() - 4)
            .map_err(|_| Fault::internal("a request is longer than 2 GiB".into()))?;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        let failed = |error: io::Error| Fault::io(&self.address, &error);
        self.stream.write_all(&frame).map_err(failed)?;
        let usual = || Instant::now() + self.request_timeout + longer;
        let deadline = self.starts_until.unwrap_or_else(usual);
        let mut body = self.read_frame(deadline)?;
        let header = ResponseHeader::decode(&mut body, R::Response::header_version(version))
            .map_err(|error| Fault::no_kafka(&self.address, &error))?;
        if header.correlation_id != self.correlation {
            let message = "a response belongs to another request".to_string();
            return Err(Fault::retry(format!("broker {}: {message}", self.address)));
        }
        Ok(body)
    }

    fn read_frame(&mut self, deadline: Instant) -> Outcome<Bytes> {
        let mut length = [0; 4];
        self.read_exact(&mut length, deadline)?;
        let length = i32::from_be_bytes(length);
        let length = usize::try_from(length).ok().filter(|length| *length <= FRAME_BYTES_MAX);
        let Some(length) = length else {
            return Err(Fault::no_kafka(&self.address, &"its answer is no response of Kafka's"));
        };
        // Room is made as bytes come: the peer may only say that there are many.
        let mut body = BytesMut::zeroed(length.min(STEP_BYTES));
        self.read_exact(&mut body, deadline)?;
        while body.len() < length {
            let before = body.len();
            body.resize(length.min(2 * before), 0);
            self.read_exact(&mut body[before..], deadline)?;
        }
        Ok(body.freeze())
    }

    fn read_exact(&mut self, into: &mut [u8], deadline: Instant) -> Outcome<()> {
        let failed = |error: io::Error| Fault::io(&self.address, &error);
        let mut at = 0;
        while at < into.len() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Fault::io(&self.address, &io::ErrorKind::TimedOut.into()));
            }
            self.stream.socket().set_read_timeout(Some(left.min(LOOK))).map_err(failed)?;
            match self.stream.read(&mut into[at..]) {
                Ok(0) => {
                    return Err(Fault::io(&self.address, &io::ErrorKind::UnexpectedEof.into()));
                }
                Ok(read) => at += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock
                    ) =>
                {
                    self.look()?;
                }
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }

    /// No answer yet: tells the user if that lasts long; nobody waits in a job that is to end.
    fn look(&self) -> Outcome<()> {
        let Some(away) = &self.away else { return Ok(()) };
        away.look();
        match away.has_given_up() {
            true => Err(Fault::retry("the job is to end".into())),
            false => Ok(()),
        }
    }
}

/// The first of a host's addresses that answers; each has its share of the time until `end`.
fn connect(address: &Address, end: Instant) -> Outcome<TcpStream> {
    let found = (address.host.as_str(), address.port).to_socket_addrs();
    let found = found.map_err(|error| Fault::unreachable(address, &error))?;
    let mut last = io::Error::other("the host has no address");
    let mut found: VecDeque<SocketAddr> = found.collect();
    while let Some(socket) = found.pop_front() {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = (left / (found.len() as u32 + 1)).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&socket, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(Fault::unreachable(address, &last))
}
