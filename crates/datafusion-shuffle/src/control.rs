//! Control messages between the two ends of a link, besides the data: a stream of gRPC messages,
//! over the worker's own port. The reader opens the stream.

use futures::stream::BoxStream;
use prost::Message;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use datafusion_distributed::grpc::BoxCloneSyncChannel;

/// The service's name.
pub(crate) const SERVICE: &str = "millstream.Exchange";
/// Path of the only call.
pub(crate) const LINK: &str = "/millstream.Exchange/Link";

/// From the reader to the writer.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ToWriter {
    #[prost(oneof = "Said", tags = "1, 2, 3, 4")]
    pub(crate) said: Option<Said>,
}

/// Message of a reader.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Said {
    /// First of all: where its lanes are.
    #[prost(message, tag = "1")]
    Hello(Hellos),
    #[prost(message, tag = "2")]
    Open(Open),
    #[prost(message, tag = "3")]
    Credit(Credit),
    /// The reader of this stream has gone.
    #[prost(uint32, tag = "4")]
    Close(u32),
}

/// Set-up messages, one for each lane.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Hellos {
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub(crate) lanes: Vec<Vec<u8>>,
}

/// Opens the streams of a range of a task's partitions.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Open {
    /// The number of the first stream; the others follow.
    #[prost(uint32, tag = "1")]
    pub(crate) first: u32,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) query: Vec<u8>,
    #[prost(uint64, tag = "3")]
    pub(crate) stage: u64,
    #[prost(uint64, tag = "4")]
    pub(crate) task: u64,
    #[prost(uint64, tag = "5")]
    pub(crate) start: u64,
    #[prost(uint64, tag = "6")]
    pub(crate) end: u64,
    #[prost(oneof = "Head", tags = "7, 8")]
    pub(crate) head: Option<Head>,
}

/// The node at the head of the task's plan; none for none.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Head {
    /// Partitions of a broadcast.
    #[prost(uint64, tag = "7")]
    Broadcast(u64),
    /// An encoded partitioning.
    #[prost(bytes = "vec", tag = "8")]
    Repartition(Vec<u8>),
}

/// Bytes of a stream that the writer may have sent since its beginning.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Credit {
    #[prost(uint32, tag = "1")]
    pub(crate) stream: u32,
    #[prost(uint64, tag = "2")]
    pub(crate) bytes: u64,
}

/// From the writer to the reader.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ToReader {
    #[prost(oneof = "Answer", tags = "1, 2, 3")]
    pub(crate) answer: Option<Answer>,
}

/// Answer of a writer.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Answer {
    #[prost(message, tag = "1")]
    Hello(Hellos),
    #[prost(message, tag = "2")]
    Opened(Opened),
    #[prost(message, tag = "3")]
    Refused(Refused),
}

/// Streams are open.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Opened {
    /// The number of the first of them.
    #[prost(uint32, tag = "1")]
    pub(crate) first: u32,
    /// The schema of their batches, as Arrow IPC.
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) schema: Vec<u8>,
    /// The flow through which the streams come; none: the lanes.
    #[prost(message, optional, tag = "3")]
    pub(crate) joined: Option<Joined>,
}

/// A reader's place in the flow of a broadcast, in which streams are numbered from 0.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Joined {
    #[prost(string, tag = "1")]
    pub(crate) flow: String,
    /// Port of the registry at the writer's host.
    #[prost(uint32, tag = "2")]
    pub(crate) port: u32,
    /// Index among the flow's targets.
    #[prost(uint32, tag = "3")]
    pub(crate) target: u32,
}

/// Streams could not be opened.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Refused {
    #[prost(uint32, tag = "1")]
    pub(crate) first: u32,
    #[prost(string, tag = "2")]
    pub(crate) reason: String,
}

impl From<Said> for ToWriter {
    fn from(said: Said) -> ToWriter {
        ToWriter { said: Some(said) }
    }
}

impl From<Answer> for ToReader {
    fn from(answer: Answer) -> ToReader {
        ToReader { answer: Some(answer) }
    }
}

/// Opens a link's control stream at a worker.
pub(crate) async fn call(
    channel: BoxCloneSyncChannel,
    said: BoxStream<'static, ToWriter>,
) -> Result<tonic::Streaming<ToReader>, Status> {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = tonic::codegen::http::uri::PathAndQuery::from_static(LINK);
    let codec: ProstCodec<ToWriter, ToReader> = ProstCodec::default();
    Ok(client.streaming(Request::new(said), path, codec).await?.into_inner())
}
