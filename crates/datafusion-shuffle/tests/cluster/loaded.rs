//! Tables that a worker has in memory. A worker's plan names parts of Arrow files; this puts in
//! their place the rows of those parts, which are read once. The paper's tables are in memory, too
//! (7.1 and 7.2), and a query of a table that is read from files spends most of its time on that.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::ipc::reader::{FileDecoder, read_footer_length};
use datafusion::arrow::ipc::{convert::fb_to_schema, root_as_footer};
use datafusion::catalog::memory::{DataSourceExec, MemorySourceConfig};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion_distributed::{WorkerPlanRewriteEvent, WorkerPlanRewriteEventResponse};

/// What `FileDecoder` needs behind the last batch: the footer's length and the magic bytes.
const TRAILER_BYTES: u64 = 10;

/// Puts tables in memory in the place of files.
pub(crate) fn load(event: WorkerPlanRewriteEvent<'_>) -> Result<WorkerPlanRewriteEventResponse> {
    let loaded = event.plan.transform_up(|node| match in_memory(&node)? {
        Some(scan) => Ok(Transformed::yes(scan)),
        None => Ok(Transformed::no(node)),
    })?;
    Ok(WorkerPlanRewriteEventResponse::new(loaded.data))
}

/// A scan of what a scan of files would read.
fn in_memory(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(source) = node.downcast_ref::<DataSourceExec>() else { return Ok(None) };
    let Some(scan) = source.data_source().downcast_ref::<FileScanConfig>() else {
        return Ok(None);
    };
    let mut partitions = Vec::new();
    for group in &scan.file_groups {
        let mut batches = Vec::new();
        for file in group.iter() {
            batches.extend(batches_of(file)?);
        }
        partitions.push(batches);
    }
    let memory = |projection| {
        let schema = scan.file_schema().clone();
        let source = MemorySourceConfig::try_new(&partitions, schema, projection)?;
        let source = source.with_limit(scan.limit);
        Ok::<_, DataFusionError>(DataSourceExec::from_data_source(source))
    };
    let Some(projection) = scan.file_source().projection() else {
        return Ok(Some(memory(None)?));
    };
    let column = |expr: &datafusion::physical_expr::projection::ProjectionExpr| {
        let column = expr.expr.downcast_ref::<Column>()?;
        (column.name() == expr.alias).then(|| column.index())
    };
    let columns: Option<Vec<usize>> = projection.iter().map(column).collect();
    Ok(Some(match columns {
        Some(columns) => memory(Some(columns))?,
        None => {
            let expressions = projection.iter().cloned();
            Arc::new(ProjectionExec::try_new(expressions, memory(None)?)?)
        }
    }))
}

/// A part of a file: its path, and where the part begins and ends.
type Part = (PathBuf, u64, u64);

/// The batches that begin in a part of a file.
fn batches_of(file: &PartitionedFile) -> Result<Vec<RecordBatch>> {
    static LOADED: Mutex<Option<HashMap<Part, Vec<RecordBatch>>>> = Mutex::new(None);
    let path = PathBuf::from(format!("/{}", file.object_meta.location));
    let (from, to) = file
        .range
        .as_ref()
        .map_or((0, u64::MAX), |range| (range.start.unsigned_abs(), range.end.unsigned_abs()));
    let part = (path, from, to);
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let loaded = loaded.get_or_insert_default();
    if let Some(batches) = loaded.get(&part) {
        return Ok(batches.clone());
    }
    let batches = read(&part)?;
    loaded.insert(part, batches.clone());
    Ok(batches)
}

fn read((path, from, to): &Part) -> Result<Vec<RecordBatch>> {
    let mut file = File::open(path)?;
    let whole = file.metadata()?.len();
    let mut bytes = |from: u64, bytes: usize| {
        let mut buffer = vec![0; bytes];
        file.seek(SeekFrom::Start(from))?;
        file.read_exact(&mut buffer)?;
        Ok::<_, DataFusionError>(buffer)
    };
    let trailer = bytes(whole - TRAILER_BYTES, TRAILER_BYTES as usize)?;
    let length = read_footer_length(trailer.try_into().expect("ten bytes"))?;
    let footer = bytes(whole - TRAILER_BYTES - length as u64, length)?;
    let footer = root_as_footer(&footer).expect("a file that this program has written");
    let schema = fb_to_schema(footer.schema().expect("columns"));
    let decoder = FileDecoder::new(schema.into(), footer.version());
    let mut batches = Vec::new();
    for block in footer.recordBatches().iter().flatten() {
        let begin = block.offset().unsigned_abs();
        if (*from..*to).contains(&begin) {
            let length = block.bodyLength().unsigned_abs() as usize
                + block.metaDataLength().unsigned_abs() as usize;
            let block_bytes = Buffer::from(bytes(begin, length)?);
            batches.extend(decoder.read_record_batch(block, &block_bytes)?);
        }
    }
    Ok(batches)
}
