//! Service of a worker beside its own: makes links, and sends opened streams to their readers.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use datafusion_distributed::Worker;
use futures::StreamExt;
use futures::stream::BoxStream;
use millstream_fabric::Fabric;
use tokio::sync::mpsc;
use tonic::codegen::{Body, BoxFuture, Service, StdError, http};
use tonic::server::{NamedService, StreamingService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::broadcast::Broadcast;
use crate::control::{Answer, Hellos, LINK, Open, Refused, SERVICE, Said, ToReader, ToWriter};
use crate::error::{Error, Result};
use crate::exchange::Exchange;
use crate::executing::{Reader, open_alone};
use crate::outbound::Outbound;
use crate::streams::Streams;

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
        exchange: server.exchange.clone(),
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
    exchange: Exchange<F>,
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
        let (worker, exchange) = (self.worker.clone(), self.exchange.clone());
        let (link, streams) = (self.link.clone(), self.streams.clone());
        let answers = self.answers.clone();
        self.streams.begin(range, async move {
            let (first, broadcast) = (open.first, Broadcast::of(&open));
            let (worker, exchange, link) = (&*worker, &exchange, &link);
            let reader = Reader { worker, exchange, link, streams: &streams };
            let opened = match broadcast.filter(|_| !exchange.gather().is_zero()) {
                Some(broadcast) => broadcast.open(&reader, open).await,
                None => open_alone(&reader, open).await,
            };
            let answer = match opened {
                Ok(opened) => Answer::Opened(opened),
                Err(reason) => {
                    streams.refuse(first);
                    Answer::Refused(Refused { first, reason })
                }
            };
            drop(answers.send(Ok(answer.into())));
        });
    }
}
