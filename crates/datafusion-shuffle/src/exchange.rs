//! A process's part in the exchange.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use datafusion_distributed::grpc::DefaultChannelResolver;
use futures::StreamExt;
use millstream_dfi::RegistryService;
use millstream_fabric::Fabric;
use millstream_fabric::setup::Token;
use tokio::sync::{OnceCell, mpsc};
use url::Url;

use crate::broadcast::{Branch, Gatherings};
use crate::common::Common;
use crate::config::Config;
use crate::control::{Answer, Joined, Said, ToReader, call};
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
    /// Readers of broadcasts that wait for others, and the registry at which flows are declared,
    /// once there was one.
    gatherings: Gatherings,
    registry: Mutex<Option<Arc<RegistryService>>>,
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
        let (links, gatherings, registry) = Default::default();
        let inner = Inner { fabric, common, mover, channels, links, gatherings, registry };
        Ok(Exchange(Arc::new(inner)))
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

    /// How long readers of a broadcast wait for others.
    pub(crate) fn gather(&self) -> Duration {
        self.0.common.config.gather
    }

    pub(crate) fn gatherings(&self) -> &Gatherings {
        &self.0.gatherings
    }

    /// The registry of this process' broadcasts.
    pub(crate) fn registry(&self) -> Result<Arc<RegistryService>> {
        let mut registry = lock(&self.0.registry);
        if let Some(registry) = &*registry {
            return Ok(registry.clone());
        }
        let anywhere = (Ipv4Addr::UNSPECIFIED, 0).into();
        let opened = Arc::new(RegistryService::open(self.0.common.token, anywhere)?);
        Ok(registry.insert(opened).clone())
    }

    /// Joins the flow of a broadcast, through which streams of a link come.
    pub(crate) async fn follow(
        &self,
        url: &Url,
        joined: Joined,
        streams: (Arc<Inbound<F>>, u32, u32),
    ) -> Result<()> {
        let (fabric, common) = (self.0.fabric.clone(), self.0.common.clone());
        let worker = url.clone();
        // Joining waits for the writer and all readers.
        let connecting = tokio::task::spawn_blocking(move || {
            Branch::connect(&fabric, (&common, &worker), &joined, streams)
        });
        let refused = |reason: String| Error::Connect { worker: url.to_string(), reason };
        let branch = connecting.await.map_err(|error| refused(error.to_string()))??;
        self.look_after(Arc::new(branch));
        Ok(())
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
