//! A process's part in the exchange.

use std::collections::HashMap;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};

use datafusion_distributed::grpc::DefaultChannelResolver;
use futures::StreamExt;
use millstream_fabric::Fabric;
use millstream_fabric::setup::Token;
use tokio::sync::{OnceCell, mpsc};
use url::Url;

use crate::common::Common;
use crate::config::Config;
use crate::control::{Answer, Said, ToReader, call};
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::inbound::{Inbound, Opening};
use crate::mover::{Member, Mover, lock};

/// A link that is there, or about to be.
type Link<F> = Arc<OnceCell<Arc<Inbound<F>>>>;

/// A process's part in the exchange: its links to workers, for reading and for writing. A clone is
/// the same part. One thread serves all links, until the last clone is dropped.
pub struct Exchange<F: Fabric>(Arc<Inner<F>>);

struct Inner<F: Fabric> {
    fabric: F,
    common: Arc<Common>,
    mover: Mover,
    channels: DefaultChannelResolver,
    links: Mutex<HashMap<Url, Link<F>>>,
}

impl<F: Fabric> Clone for Exchange<F> {
    fn clone(&self) -> Exchange<F> {
        Exchange(self.0.clone())
    }
}

impl<F: Fabric> Exchange<F> {
    /// A part in the exchange of the processes that have this token, over a device that was opened
    /// with it.
    pub fn new(fabric: F, token: Token, config: Config) -> Result<Exchange<F>> {
        config.check()?;
        let mover = Mover::start()?;
        let (counters, bell) = (Mutex::default(), mover.bell());
        let last_id = AtomicU32::new(0);
        let common = Arc::new(Common { config, token, counters, bell, last_id });
        let channels = DefaultChannelResolver::default();
        let links = Mutex::default();
        Ok(Exchange(Arc::new(Inner { fabric, common, mover, channels, links })))
    }

    /// Counts so far.
    pub fn counters(&self) -> Counters {
        *lock(&self.0.common.counters)
    }

    pub(crate) fn fabric(&self) -> &F {
        &self.0.fabric
    }

    pub(crate) fn common(&self) -> &Arc<Common> {
        &self.0.common
    }

    /// The gRPC channels, over which plans go.
    pub(crate) fn channels(&self) -> &DefaultChannelResolver {
        &self.0.channels
    }

    pub(crate) fn look_after(&self, link: Arc<dyn Member>) {
        self.0.mover.add(link);
    }

    /// The link to a worker, which is made if there is none, or if the last one is broken.
    pub(crate) async fn link(&self, url: &Url) -> Result<Arc<Inbound<F>>> {
        let link = {
            let mut links = lock(&self.0.links);
            let link = links.entry(url.clone()).or_default();
            if link.get().is_some_and(|link| link.is_broken()) {
                *link = Link::default();
            }
            link.clone()
        };
        let patience = self.0.common.config.patience;
        let made = link.get_or_try_init(|| async {
            tokio::time::timeout(patience, self.connect(url)).await.unwrap_or_else(|_| {
                let reason = format!("it has not answered for {} s", patience.as_secs());
                Err(Error::Connect { worker: url.to_string(), reason })
            })
        });
        made.await.cloned()
    }

    async fn connect(&self, url: &Url) -> Result<Arc<Inbound<F>>> {
        let refused = |reason: String| Error::Connect { worker: url.to_string(), reason };
        let channel =
            self.0.channels.get_channel(url).await.map_err(|error| refused(error.to_string()))?;
        let common = self.0.common.clone();
        let opening = Opening::new(&self.0.fabric, &common)?;
        let (control, said) = mpsc::unbounded_channel();
        // The receiver is in this function.
        drop(control.send(Said::Hello(opening.hellos(&common.token)?).into()));
        let next = async |mut said: mpsc::UnboundedReceiver<_>| {
            let message = said.recv().await?;
            Some((message, said))
        };
        let said = futures::stream::unfold(said, next).boxed();
        let failed = |status: tonic::Status| refused(status.message().into());
        let mut answers = call(channel, said).await.map_err(failed)?;
        let first = answers.message().await.map_err(failed)?;
        let Some(ToReader { answer: Some(Answer::Hello(hellos)) }) = first else {
            return Err(refused("it has not answered with a set-up message".into()));
        };
        let worker = url.to_string();
        let connecting =
            tokio::task::spawn_blocking(move || opening.connect(worker, common, &hellos, control));
        let link = connecting.await.map_err(|error| refused(error.to_string()))??;
        let link = Arc::new(link);
        self.look_after(link.clone());
        let (exchange, url) = (Arc::downgrade(&self.0), url.clone());
        let listening = link.clone();
        tokio::spawn(async move {
            listening.listen(answers).await;
            // It is broken, and holds memory as long as it is known.
            if let Some(exchange) = exchange.upgrade() {
                exchange.forget(&url, &listening);
            }
        });
        Ok(link)
    }
}

impl<F: Fabric> Inner<F> {
    /// Forgets a link, unless there is another one to this worker by now.
    fn forget(&self, url: &Url, link: &Arc<Inbound<F>>) {
        let mut links = lock(&self.links);
        let known = links.get(url).and_then(|known| known.get());
        if known.is_some_and(|known| Arc::ptr_eq(known, link)) {
            links.remove(url);
        }
    }
}
