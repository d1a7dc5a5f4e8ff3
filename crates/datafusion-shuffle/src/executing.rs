//! Executing a task's plan for a reader.

use std::sync::Arc;

use datafusion::execution::SendableRecordBatchStream;
use datafusion_distributed::{ExecuteTaskRequest, MaybeEncoded, ProducerHead, TaskKey, Worker};
use millstream_fabric::Fabric;

use crate::control::{Head, Open, Opened};
use crate::exchange::Exchange;
use crate::image::encode_schema;
use crate::outbound::Outbound;
use crate::streams::Streams;

/// The session of a reader, as far as streams are concerned.
pub(crate) struct Reader<'a, F: Fabric> {
    pub(crate) worker: &'a Worker,
    pub(crate) exchange: &'a Exchange<F>,
    pub(crate) link: &'a Arc<Outbound<F>>,
    pub(crate) streams: &'a Arc<Streams>,
}

/// Opens streams through the reader's link.
pub(crate) async fn open_alone<F: Fabric>(
    reader: &Reader<'_, F>,
    open: Open,
) -> std::result::Result<Opened, String> {
    let first = open.first;
    let (schema, batches) = execute(reader.worker, open).await?;
    reader.streams.add(reader.link, first, batches);
    Ok(Opened { first, schema, joined: None })
}

/// The streams that a request is for, and their schema.
pub(crate) async fn execute(
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
