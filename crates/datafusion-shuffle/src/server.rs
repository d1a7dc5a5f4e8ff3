//! Service of a worker beside its own: makes links, and sends opened streams to their readers.

use std::collections::HashMap;
use std::convert::Infallible;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use datafusion::execution::SendableRecordBatchStream;
use datafusion_distributed::{ExecuteTaskRequest, MaybeEncoded, ProducerHead, TaskKey, Worker};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use millstream_fabric::Fabric;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tonic::codegen::{Body, BoxFuture, Service, StdError, http};
use tonic::server::{NamedService, StreamingService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::control::{
    Answer, Head, Hellos, LINK, Open, Opened, Refused, SERVICE, Said, ToReader, ToWriter,
};
use crate::error::{Error, Result};
use crate::exchange::Exchange;
use crate::image::encode_schema;
use crate::mover::lock;
use crate::outbound::{Outbound, Outgoing};

/// The service of an exchange. Add it to the server that the worker's own service is added to.
pub struct ExchangeServer<F: Fabric> {
    exchange: Exchange<F>,
    worker: Arc<Worker>,
}

impl<F: Fabric> ExchangeServer<F> {
    /// A service through which `worker`'s batches go to other processes.
    pub fn new(exchange: &Exchange<F>, worker: Worker) -> ExchangeServer<F> {
        ExchangeServer { exchange: exchange.clone(), worker: Arc::new(worker) }
    }
}

impl<F: Fabric> Clone for ExchangeServer<F> {
    fn clone(&self) -> ExchangeServer<F> {
        ExchangeServer { exchange: self.exchange.clone(), worker: self.worker.clone() }
    }
}

impl<F: Fabric> NamedService for ExchangeServer<F> {
    const NAME: &'static str = SERVICE;
}

impl<F: Fabric, B> Service<http::Request<B>> for ExchangeServer<F>
where
    B: Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(
        &mut self,
        _context: &mut Context<'_>,
    ) -> Poll<std::result::Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move {
            if request.uri().path() != LINK {
                return Ok(Status::unimplemented("there is one call: Link").into_http());
            }
            let codec: ProstCodec<ToReader, ToWriter> = ProstCodec::default();
            Ok(tonic::server::Grpc::new(codec).streaming(Link(server), request).await)
        })
    }
}

/// The service's call.
struct Link<F: Fabric>(ExchangeServer<F>);

impl<F: Fabric> StreamingService<ToWriter> for Link<F> {
    type Response = ToReader;
    type ResponseStream = BoxStream<'static, std::result::Result<ToReader, Status>>;
    type Future = BoxFuture<Response<Self::ResponseStream>, Status>;

    fn call(&mut self, request: Request<Streaming<ToWriter>>) -> Self::Future {
        let server = self.0.clone();
        Box::pin(async move {
            let (answers, answered) = mpsc::unbounded_channel();
            tokio::spawn(async move {
                let ended = serve(&server, request.into_inner(), &answers).await;
                if let Err(status) = ended {
                    // A reader that has gone needs no reason.
                    drop(answers.send(Err(status)));
                }
            });
            let next = async |mut answered: mpsc::UnboundedReceiver<_>| {
                let answer = answered.recv().await?;
                Some((answer, answered))
            };
            Ok(Response::new(futures::stream::unfold(answered, next).boxed()))
        })
    }
}

/// Where answers go.
type Answers = mpsc::UnboundedSender<std::result::Result<ToReader, Status>>;

/// A link, until its reader goes.
async fn serve<F: Fabric>(
    server: &ExchangeServer<F>,
    mut said: Streaming<ToWriter>,
    answers: &Answers,
) -> std::result::Result<(), Status> {
    let first = said.message().await?.and_then(|first| first.said);
    let Some(Said::Hello(hellos)) = first else {
        return Err(Status::invalid_argument("a link begins with a set-up message"));
    };
    let (link, ours) = connect(&server.exchange, hellos)
        .await
        .map_err(|error| Status::failed_precondition(error.to_string()))?;
    let link = Arc::new(link);
    server.exchange.look_after(link.clone());
    let session = Session {
        worker: server.worker.clone(),
        link,
        answers: answers.clone(),
        streams: Arc::default(),
    };
    session.answer(Answer::Hello(ours));
    loop {
        // A reader whose host is silent says nothing, and does not end the control stream either.
        let message = tokio::select! {
            message = said.message() => message?,
            error = session.link.broken() => return Err(Status::unavailable(error.to_string())),
        };
        let Some(ToWriter { said }) = message else { return Ok(()) };
        match said {
            Some(Said::Open(open)) => session.open(open),
            Some(Said::Credit(credit)) => session.streams.grant(credit.stream, credit.bytes),
            Some(Said::Close(stream)) => session.streams.close(stream),
            Some(Said::Hello(_)) | None => {}
        }
    }
}

async fn connect<F: Fabric>(
    exchange: &Exchange<F>,
    hellos: Hellos,
) -> Result<(Outbound<F>, Hellos)> {
    let (fabric, common) = (exchange.fabric().clone(), exchange.common().clone());
    // It may wait for the peer.
    let connecting =
        tokio::task::spawn_blocking(move || Outbound::connect(&fabric, common, &hellos));
    connecting.await.map_err(|error| Error::Batch(error.to_string()))?
}

/// The streams of one link. Dropping the session ends all streams.
struct Session<F: Fabric> {
    worker: Arc<Worker>,
    link: Arc<Outbound<F>>,
    answers: Answers,
    streams: Arc<Streams>,
}

impl<F: Fabric> Drop for Session<F> {
    fn drop(&mut self) {
        self.streams.end();
        self.link.close();
    }
}

impl<F: Fabric> Session<F> {
    fn answer(&self, answer: Answer) {
        // A reader that has gone gets no answers.
        drop(self.answers.send(Ok(answer.into())));
    }

    /// Opens streams, in a task of its own: the plan may not have come yet.
    fn open(&self, open: Open) {
        let Some(range) = open.end.checked_sub(open.start).and_then(|count| {
            let end = open.first.checked_add(u32::try_from(count).ok()?)?;
            Some(open.first..end)
        }) else {
            let reason = "there are no such partitions".into();
            return self.answer(Answer::Refused(Refused { first: open.first, reason }));
        };
        let (worker, link) = (self.worker.clone(), self.link.clone());
        let (answers, streams) = (self.answers.clone(), self.streams.clone());
        self.streams.begin(range, async move {
            let first = open.first;
            let answer = match execute(&worker, open).await {
                Ok((schema, batches)) => {
                    streams.add(&link, first, batches);
                    Answer::Opened(Opened { first, schema })
                }
                Err(reason) => {
                    streams.refuse(first);
                    Answer::Refused(Refused { first, reason })
                }
            };
            drop(answers.send(Ok(answer.into())));
        });
    }
}

/// The streams that a request is for, and their schema.
async fn execute(
    worker: &Worker,
    open: Open,
) -> std::result::Result<(Vec<u8>, Vec<SendableRecordBatchStream>), String> {
    let query = uuid::Uuid::from_slice(&open.query).map_err(|error| error.to_string())?;
    let request = ExecuteTaskRequest {
        task_key: TaskKey {
            query_id: query,
            stage_id: open.stage as usize,
            task_number: open.task as usize,
        },
        target_partition_start: open.start as usize,
        target_partition_end: open.end as usize,
        producer_head: match open.head {
            None => ProducerHead::None,
            Some(Head::Broadcast(partitions)) => {
                ProducerHead::BroadcastExec { output_partitions: partitions as usize }
            }
            Some(Head::Repartition(partitioning)) => {
                ProducerHead::RepartitionExec { partitioning: MaybeEncoded::Encoded(partitioning) }
            }
        },
    };
    let (streams, _) = worker.execute_task(request).await.map_err(|error| error.to_string())?;
    let schema = match streams.first() {
        Some(stream) => stream.schema(),
        None => Arc::new(datafusion::arrow::datatypes::Schema::empty()),
    };
    let schema = encode_schema(&schema).map_err(|error| error.to_string())?;
    Ok((schema, streams))
}

/// The streams of a link that are open, or about to be.
#[derive(Default)]
struct Streams(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// All tasks of the link; dropped, they end.
    tasks: JoinSet<()>,
    /// Streams that are about to be opened, and the closed ones among them.
    opening: Vec<Range<u32>>,
    closed: Vec<u32>,
    open: HashMap<u32, (watch::Sender<u64>, AbortHandle)>,
    ended: bool,
}

impl Streams {
    /// Starts what opens a range of streams.
    fn begin(&self, range: Range<u32>, opening: impl Future<Output = ()> + Send + 'static) {
        let mut open = lock(&self.0);
        while open.tasks.try_join_next().is_some() {}
        open.opening.push(range);
        open.tasks.spawn(opening);
    }

    /// Streams are there: starts what sends them.
    fn add<F: Fabric>(
        self: &Arc<Self>,
        link: &Arc<Outbound<F>>,
        first: u32,
        batches: Vec<SendableRecordBatchStream>,
    ) {
        let mut open = lock(&self.0);
        if open.ended {
            return;
        }
        open.opening.retain(|range| range.start != first);
        for (number, batches) in (first..).zip(batches) {
            if let Some(at) = open.closed.iter().position(|closed| *closed == number) {
                open.closed.swap_remove(at);
                continue;
            }
            let (credit, granted) = watch::channel(0);
            let (outgoing, streams) = (link.stream(number), self.clone());
            let task = open.tasks.spawn(async move {
                send(outgoing, batches, granted).await;
                streams.forget(number);
            });
            open.open.insert(number, (credit, task));
        }
    }

    /// A range of streams cannot be opened.
    fn refuse(&self, first: u32) {
        let mut open = lock(&self.0);
        let refused = open.opening.iter().position(|range| range.start == first);
        if let Some(at) = refused {
            let range = open.opening.swap_remove(at);
            open.closed.retain(|closed| !range.contains(closed));
        }
    }

    fn grant(&self, stream: u32, bytes: u64) {
        if let Some((credit, _)) = lock(&self.0).open.get(&stream) {
            credit.send_if_modified(|granted| {
                let more = bytes > *granted;
                *granted = bytes.max(*granted);
                more
            });
        }
    }

    fn close(&self, stream: u32) {
        let mut open = lock(&self.0);
        if let Some((_, task)) = open.open.remove(&stream) {
            task.abort();
        } else if open.opening.iter().any(|range| range.contains(&stream)) {
            open.closed.push(stream);
        }
    }

    fn forget(&self, stream: u32) {
        lock(&self.0).open.remove(&stream);
    }

    fn end(&self) {
        let mut open = lock(&self.0);
        open.ended = true;
        open.tasks.abort_all();
        open.open.clear();
    }
}

/// Sends a stream to its end. An error of the plan, or its panic, ends it, too; one of the link has
/// broken that, so the reader knows.
async fn send<F: Fabric>(
    mut outgoing: Outgoing<F>,
    mut batches: SendableRecordBatchStream,
    mut granted: watch::Receiver<u64>,
) {
    let error = loop {
        let sent = outgoing.sent;
        if granted.wait_for(|granted| *granted > sent).await.is_err() {
            return;
        }
        match AssertUnwindSafe(batches.next()).catch_unwind().await {
            Ok(Some(Ok(batch))) => match outgoing.batch(&batch).await {
                Ok(()) => {}
                Err(Error::Batch(reason)) => break Some(reason),
                Err(_) => return,
            },
            Ok(Some(Err(error))) => break Some(error.to_string()),
            Ok(None) => break None,
            Err(_) => break Some("its plan panicked; the worker's standard error says why".into()),
        }
    };
    // What the plan holds is let go before the reader knows of the end.
    drop(batches);
    drop(outgoing.end(error).await);
}
