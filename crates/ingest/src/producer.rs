//! The producer's side of a ring, for programs that link this library.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::writer::{IpcWriteOptions, StreamEncoder};
use millstream_contract::{Error, Result};
use millstream_dfi::RegistryClient;
use millstream_fabric::setup::Token;

use crate::fabric::{Device, Outflow, PATIENCE};
use crate::wire::{self, Answer, Frame, Greeting, Welcome};

const OUT_OF_TURN: &str = "an answer out of turn";
/// How often a producer that waits for the last answer looks whether the job is there.
const LOOK: Duration = Duration::from_millis(100);

/// Where a producer sends its batches.
///
/// ```no_run
/// # fn batches() -> Vec<arrow::array::RecordBatch> { Vec::new() }
/// use millstream_ingest::ProducerOptions;
///
/// let batches = batches();
/// let options = ProducerOptions::new("127.0.0.1:8815", "clicks").name("shop-3");
/// let mut producer = options.connect(&batches[0].schema())?;
/// for batch in &batches {
///     producer.send(batch)?;
/// }
/// println!("the job has taken {} rows", producer.finish()?);
/// # Ok::<(), millstream_contract::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ProducerOptions {
    address: String,
    greeting: Greeting,
}

impl ProducerOptions {
    /// To the table of this name, whose job listens at this address, such as `host:8815`.
    pub fn new(address: impl Into<String>, table: impl Into<String>) -> ProducerOptions {
        let greeting = Greeting { table: table.into(), producer: None, token: None };
        ProducerOptions { address: address.into(), greeting }
    }

    /// The producer's name in messages: 1 to 64 letters, digits and `-_.:/`.
    pub fn name(mut self, name: impl Into<String>) -> ProducerOptions {
        self.greeting.producer = Some(name.into());
        self
    }

    /// The table's token.
    pub fn token(mut self, token: impl Into<String>) -> ProducerOptions {
        self.greeting.token = Some(token.into());
        self
    }

    /// Connects, and takes a slot of the table, for batches of this schema.
    ///
    /// # Errors
    /// [`Error::Io`] if nobody listens, or with the job's reason for a refusal.
    pub fn connect(&self, schema: &SchemaRef) -> Result<Producer> {
        let place = format!("channel {} at {}", self.greeting.table, self.address);
        let error = |message: String| Error::Io {
            place: place.clone(),
            message,
            help: "look at the address, the table's name and its columns".into(),
        };
        let addresses = self.address.to_socket_addrs().map_err(|e| error(e.to_string()))?;
        let options = IpcWriteOptions::default();
        let mut tracker = arrow::ipc::writer::DictionaryTracker::new(false);
        let message = arrow::ipc::writer::IpcDataGenerator::default()
            .schema_to_bytes_with_dictionary_tracker(schema, &mut tracker, &options);
        let greet = |mut control: TcpStream| -> std::io::Result<(Answer, TcpStream)> {
            wire::greet(&mut control, &self.greeting, &message.ipc_message)?;
            Ok((wire::answered(&mut control)?, control))
        };
        let io = |e: std::io::Error| error(e.to_string());
        let (mut answer, mut control) = greet(first_of(addresses).map_err(&error)?).map_err(io)?;
        if let Answer::Elsewhere(port) = answer {
            let other = SocketAddr::new(control.peer_addr().map_err(io)?.ip(), port);
            let other = first_of([other].into_iter());
            (answer, control) = greet(other.map_err(&error)?).map_err(io)?;
        }
        let welcome = match answer {
            Answer::Welcome(welcome) => welcome,
            Answer::Refused(why) => return Err(error(why)),
            Answer::Taken(_) | Answer::Elsewhere(_) => return Err(error(OUT_OF_TURN.into())),
        };
        let outflow = match connect(&welcome, &control) {
            Ok(outflow) => outflow,
            Err(message) => return Err(error(message)),
        };
        let encoder = StreamEncoder::try_new(schema).map_err(|e| error(e.to_string()))?;
        Ok(Producer { place, schema: schema.clone(), encoder, outflow, control, rows: 0 })
    }
}

fn first_of(addresses: impl Iterator<Item = SocketAddr>) -> std::result::Result<TcpStream, String> {
    let mut why = "the name has no address".to_string();
    for address in addresses {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => {
                let set = stream
                    .set_nodelay(true)
                    .and_then(|()| stream.set_read_timeout(Some(2 * PATIENCE)))
                    .and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
                return set.map(|()| stream).map_err(|error| error.to_string());
            }
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}

fn connect(
    welcome: &Welcome,
    control: &TcpStream,
) -> std::result::Result<Box<dyn Outflow>, String> {
    let (here, there) = (control.local_addr(), control.peer_addr());
    let (here, there) = here.and_then(|here| Ok((here, there?))).map_err(|e| e.to_string())?;
    let token = Token::new(welcome.token);
    let device = Device::open(welcome.transport, token, here.ip()).map_err(|e| e.to_string())?;
    let registry = wire::registry_address(there, welcome.registry);
    let registry = RegistryClient::new(Token::new(welcome.registry_token), registry);
    device.connect(&registry, &welcome.flow).map_err(|e| e.to_string())
}

/// A producer with a slot. Dropping it before [`Producer::finish`] is a loss to the job.
pub struct Producer {
    place: String,
    schema: SchemaRef,
    encoder: StreamEncoder,
    outflow: Box<dyn Outflow>,
    control: TcpStream,
    rows: u64,
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Producer {
    /// Sends a batch. Waits while the job is behind.
    ///
    /// # Errors
    /// [`Error::Data`] if the batch has another schema, [`Error::Io`] with the job's reason if the
    /// job takes no more.
    pub fn send(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.schema_ref() != &self.schema {
            return Err(Error::Data {
                place: self.place.clone(),
                message: "the batch has another schema than the producer".into(),
                help: "give each batch the schema of ProducerOptions::connect".into(),
            });
        }
        let encoded = self.encoder.encode(batch).map_err(|error| self.error(error.to_string()))?;
        let bytes: usize = encoded.iter().map(|buffer| buffer.len()).sum();
        let padding = bytes.next_multiple_of(8) - bytes;
        let head = Frame::Arrow((bytes + padding) as u64).encode();
        let sent = self.push(&head, &encoded, padding);
        sent.map_err(|error| self.reason(&error))?;
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    fn push(
        &mut self,
        head: &[u8],
        encoded: &[arrow::buffer::Buffer],
        padding: usize,
    ) -> millstream_dfi::Result<()> {
        self.outflow.push(head)?;
        // Pieces between words are put together.
        let mut rest: Vec<u8> = Vec::with_capacity(8);
        for buffer in encoded {
            let mut bytes = buffer.as_slice();
            if !rest.is_empty() {
                let part;
                (part, bytes) = bytes.split_at((8 - rest.len()).min(bytes.len()));
                rest.extend_from_slice(part);
                if rest.len() < 8 {
                    continue;
                }
                self.outflow.push(&rest)?;
                rest.clear();
            }
            let whole = bytes.len() / 8 * 8;
            self.outflow.push(&bytes[..whole])?;
            rest.extend_from_slice(&bytes[whole..]);
        }
        rest.extend(std::iter::repeat_n(0, padding));
        self.outflow.push(&rest)?;
        self.outflow.flush()
    }

    /// Sends a watermark, in microseconds of event time: no later record is earlier.
    ///
    /// # Errors
    /// As [`Producer::send`].
    pub fn send_watermark(&mut self, us: i64) -> Result<()> {
        let head = Frame::Watermark(us).encode();
        let sent = self.outflow.push(&head).and_then(|()| self.outflow.flush());
        sent.map_err(|error| self.reason(&error))
    }

    /// Ends the stream, and waits until the job has taken all of it. Returns the number of rows.
    ///
    /// # Errors
    /// [`Error::Io`] with the job's reason if the job has not taken all rows.
    pub fn finish(mut self) -> Result<u64> {
        let closed = self.outflow.close();
        closed.map_err(|error| self.reason(&error))?;
        match self.last_answer() {
            Ok(Answer::Taken(rows)) if rows == self.rows => Ok(rows),
            Ok(Answer::Taken(rows)) => {
                Err(self.error(format!("the job has taken {rows} rows of {}", self.rows)))
            }
            Ok(Answer::Refused(why)) => Err(self.error(why)),
            Ok(Answer::Welcome(_) | Answer::Elsewhere(_)) => Err(self.error(OUT_OF_TURN.into())),
            Err(error) => Err(self.error(format!("the job has ended: {error}"))),
        }
    }

    /// Waits for the last answer while the job is there: it may be slow, and have much to take.
    fn last_answer(&mut self) -> std::io::Result<Answer> {
        use std::io::ErrorKind;
        self.control.set_read_timeout(Some(LOOK))?;
        loop {
            match self.control.peek(&mut [0]) {
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    // The answer of a job that is gone may be on its way.
                    if self.outflow.progress().is_err() {
                        break;
                    }
                }
                _ => break,
            }
        }
        self.control.set_read_timeout(Some(PATIENCE))?;
        wire::answered(&mut self.control)
    }

    fn error(&self, message: String) -> Error {
        Error::Io { place: self.place.clone(), message, help: String::new() }
    }

    /// The job's reason for a flow that fails, which it says over the connection.
    fn reason(&mut self, failed: &millstream_dfi::Error) -> Error {
        let _ = self.control.set_read_timeout(Some(Duration::from_secs(1)));
        match wire::answered(&mut self.control) {
            Ok(Answer::Refused(why)) => self.error(why),
            _ => self.error(format!("the job takes no more: {failed}")),
        }
    }
}
