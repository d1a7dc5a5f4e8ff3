//! The seam to `datafusion-distributed`: how its sessions reach workers.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_distributed::grpc::create_worker_client;
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, ExecuteTaskRequest, GetWorkerInfoRequest,
    GetWorkerInfoResponse, ProducerHead, SetPlanRequest, WorkerChannel, WorkerToCoordinatorMsg,
};
use futures::StreamExt;
use futures::stream::BoxStream;
use millstream_fabric::Fabric;
use tonic::codegen::http::HeaderMap;
use url::Url;

use crate::control::{Head, Open};
use crate::exchange::Exchange;
use crate::inbound::OpenStreams;
use crate::stream::Incoming;

/// A channel resolver whose channels send plans over gRPC and batches through an exchange. Give it
/// to [`with_distributed_channel_resolver`](datafusion_distributed::DistributedExt), in the
/// coordinator's session and in those that workers build.
pub struct ShuffleResolver<F: Fabric> {
    exchange: Exchange<F>,
}

impl<F: Fabric> ShuffleResolver<F> {
    /// A resolver for sessions of this process.
    pub fn new(exchange: &Exchange<F>) -> ShuffleResolver<F> {
        ShuffleResolver { exchange: exchange.clone() }
    }
}

impl<F: Fabric> Clone for ShuffleResolver<F> {
    fn clone(&self) -> ShuffleResolver<F> {
        ShuffleResolver { exchange: self.exchange.clone() }
    }
}

#[async_trait]
impl<F: Fabric> ChannelResolver for ShuffleResolver<F> {
    async fn get_worker_client_for_url(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        let channel = self.exchange.channels().get_channel(url).await?;
        let plans = create_worker_client(channel);
        Ok(Box::new(ShuffleChannel { plans, exchange: self.exchange.clone(), url: url.clone() }))
    }
}

/// The way to one worker.
struct ShuffleChannel<F: Fabric> {
    plans: Box<dyn WorkerChannel>,
    exchange: Exchange<F>,
    url: Url,
}

#[async_trait]
impl<F: Fabric> WorkerChannel for ShuffleChannel<F> {
    async fn coordinator_channel(
        &mut self,
        headers: HeaderMap,
        set_plan_request: SetPlanRequest,
        c2w_stream: BoxStream<'static, CoordinatorToWorkerMsg>,
        metrics: ExecutionPlanMetricsSet,
        task_ctx: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
        self.plans
            .coordinator_channel(headers, set_plan_request, c2w_stream, metrics, task_ctx)
            .await
    }

    async fn execute_task(
        &mut self,
        _headers: HeaderMap,
        request: ExecuteTaskRequest,
        _metrics: ExecutionPlanMetricsSet,
        task_ctx: &Arc<TaskContext>,
    ) -> Result<Vec<BoxStream<'static, Result<RecordBatch>>>> {
        let head = match request.producer_head {
            ProducerHead::None => None,
            ProducerHead::BroadcastExec { output_partitions } => {
                Some(Head::Broadcast(output_partitions as u64))
            }
            ProducerHead::RepartitionExec { partitioning } => {
                Some(Head::Repartition(partitioning.encode(task_ctx)?))
            }
        };
        let open = Open {
            // The link gives it.
            first: 0,
            query: request.task_key.query_id.as_bytes().to_vec(),
            stage: request.task_key.stage_id as u64,
            task: request.task_key.task_number as u64,
            start: request.target_partition_start as u64,
            end: request.target_partition_end as u64,
            head,
        };
        let link = self.exchange.link(&self.url).await?;
        let OpenStreams { schema, first, inboxes, joined } =
            link.open(open, task_ctx.memory_pool()).await?;
        let count = inboxes.len() as u32;
        let stream = |(number, inbox)| Incoming::new(link.clone(), inbox, number, schema.clone());
        // Dropped, they are closed.
        let streams: Vec<_> = (first..).zip(inboxes).map(stream).collect();
        if let Some(joined) = joined {
            self.exchange.follow(&self.url, joined, (link.clone(), first, count)).await?;
        }
        Ok(streams.into_iter().map(|stream| stream.boxed()).collect())
    }

    async fn get_worker_info(
        &mut self,
        request: GetWorkerInfoRequest,
    ) -> Result<GetWorkerInfoResponse> {
        self.plans.get_worker_info(request).await
    }
}
