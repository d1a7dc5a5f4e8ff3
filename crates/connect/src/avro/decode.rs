//! Decoding of messages, each of whatever schema.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::SchemaRef;
use millstream_contract::decoding::{TOO_MUCH_HELP, exceeded, take, value_bytes};
use millstream_contract::table::{Decoded, LeftOut};
use millstream_contract::{Error, Result};

use super::layout::Layout;
use super::layouts::{Flaw, Layouts, SKIP_HELP};
use crate::input::Name;
use crate::options::OnError;
use crate::records::{Block, Decode, MessageBounds};

/// Bytes in front of a message: 0, and the number of its schema.
const FRAME: usize = 5;

/// Decoder of messages into some columns.
#[derive(Debug)]
pub(super) struct AvroMessages {
    pub(super) layouts: Arc<Layouts>,
    pub(super) on_error: OnError,
    pub(super) source: Name,
    /// The projected columns.
    pub(super) schema: SchemaRef,
    pub(super) projection: Vec<usize>,
}

/// Rows and faults of the messages so far.
#[derive(Default)]
struct Outcome {
    /// Rows, each with the indices of their messages.
    parts: Vec<(Vec<u32>, RecordBatch)>,
    /// Malformed messages.
    flaws: Vec<(u32, Flaw)>,
}

impl Decode for AvroMessages {
    fn decode(&self, block: &Block) -> Result<Decoded> {
        let Some(messages) = block.messages.as_deref() else { return Err(no_files()) };
        let width: u64 = self.schema.fields().iter().map(|of| value_bytes(of.data_type())).sum();
        let bytes = width.saturating_mul(messages.len() as u64) + block.data.len() as u64;
        let place = |index| messages.place_of(&self.source, index);
        if let Err(too_much) = take(bytes) {
            let (message, help) = (too_much.to_string(), TOO_MUCH_HELP.into());
            return Err(Error::Data { place: place(0), message, help });
        }
        let mut outcome = Outcome::default();
        match &self.layouts.registry {
            None => {
                let (data, bounds) = framed(block, messages);
                let all: Vec<u32> = (0..messages.len() as u32).collect();
                self.of_schema(0, &all, &|at| &data[bounds[at]..bounds[at + 1]], &mut outcome)?;
            }
            Some(_) => {
                let message = |at: usize| &block.data[messages.range(at)];
                let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
                for at in 0..messages.len() {
                    match number(message(at)) {
                        Ok(id) => groups.entry(id).or_default().push(at as u32),
                        Err(flaw) => outcome.flaws.push((at as u32, flaw)),
                    }
                }
                for (id, group) in &groups {
                    self.of_schema(*id, group, &message, &mut outcome)?;
                }
            }
        }
        outcome.flaws.sort_by_key(|(at, _)| *at);
        let first = outcome.flaws.first().cloned();
        if let (Some((at, (message, help))), OnError::Fail) = (&first, self.on_error) {
            let (place, message) = (place(*at as usize), message.clone());
            let help = match exceeded() {
                Some(_) => TOO_MUCH_HELP.into(),
                None => help.clone(),
            };
            return Err(Error::Data { place, message, help });
        }
        let left_out = outcome.flaws.len() as u64;
        let (rows, batch) = self.together(outcome.parts)?;
        let first_left_out = first.map(|(at, (message, _))| LeftOut {
            place: place(at as usize),
            message,
            before: rows.partition_point(|row| *row < at),
        });
        let starts: Vec<u32> =
            rows.iter().map(|row| messages.range(*row as usize).start as u32).collect();
        let places = block.places(&self.source, &starts);
        Ok(Decoded { left_out, first_left_out, ..Decoded::whole(batch, Some(places)) })
    }
}

impl AvroMessages {
    /// Decodes the messages with these indices, which have the same schema.
    fn of_schema<'m>(
        &self,
        id: u32,
        indices: &[u32],
        message: &dyn Fn(usize) -> &'m [u8],
        outcome: &mut Outcome,
    ) -> Result<()> {
        if indices.is_empty() {
            return Ok(());
        }
        match self.layouts.layout(id, &self.projection, &self.schema)? {
            Ok(layout) => self.halves(&layout, indices, message, outcome),
            Err(flaw) => outcome.flaws.extend(indices.iter().map(|at| (*at, flaw.clone()))),
        }
        Ok(())
    }

    /// Decodes messages. The messages before a malformed message are decoded again, or each half of
    /// the messages if the malformed message is not known.
    fn halves<'m>(
        &self,
        layout: &Layout,
        indices: &[u32],
        message: &dyn Fn(usize) -> &'m [u8],
        outcome: &mut Outcome,
    ) {
        let before = outcome.flaws.len();
        let mut rest = indices;
        // The first fault ends the job.
        while !rest.is_empty() && (self.on_error != OnError::Fail || outcome.flaws.len() == before)
        {
            let fault = match layout.decode(rest.iter().map(|at| message(*at as usize))) {
                Ok(batch) => {
                    outcome.parts.push((rest.to_vec(), batch));
                    return;
                }
                Err(fault) => fault,
            };
            match fault.at.or((rest.len() == 1).then_some(0)) {
                Some(at) => {
                    let (good, from) = rest.split_at(at.min(rest.len() - 1));
                    self.halves(layout, good, message, outcome);
                    outcome.flaws.push((from[0], (fault.why, SKIP_HELP.to_string())));
                    rest = &from[1..];
                }
                None => {
                    let (first, second) = rest.split_at(rest.len() / 2);
                    self.halves(layout, first, message, outcome);
                    rest = second;
                }
            }
        }
    }

    /// All rows in the order of their messages, with the indices of these.
    fn together(&self, parts: Vec<(Vec<u32>, RecordBatch)>) -> Result<(Vec<u32>, RecordBatch)> {
        if parts.len() == 1 {
            return parts.into_iter().next().ok_or_else(|| Error::Internal("no part".into()));
        }
        let found: Vec<u32> = parts.iter().flat_map(|(rows, _)| rows.iter().copied()).collect();
        let mut order: Vec<u32> = (0..found.len() as u32).collect();
        order.sort_by_key(|place| found[*place as usize]);
        let rows: Vec<u32> = order.iter().map(|place| found[*place as usize]).collect();
        if self.schema.fields().is_empty() {
            let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
            let batch =
                RecordBatch::try_new_with_options(self.schema.clone(), Vec::new(), &options)?;
            return Ok((rows, batch));
        }
        let batch = concat_batches(&self.schema, parts.iter().map(|(_, batch)| batch))?;
        Ok((rows, take_record_batch(&batch, &UInt32Array::from(order))?))
    }
}

/// For sources of files.
pub(super) fn no_files() -> Error {
    Error::Internal("Avro is read from messages only".into())
}

/// The number of a message's schema.
fn number(message: &[u8]) -> std::result::Result<u32, Flaw> {
    match message {
        [0, a, b, c, d, ..] => Ok(u32::from_be_bytes([*a, *b, *c, *d])),
        _ => {
            let found = match message.first() {
                Some(0) => format!("{} bytes", message.len()),
                Some(byte) => format!("the byte {byte}"),
                None => "no byte".to_string(),
            };
            let message =
                format!("expected the byte 0 and the number of a schema in 4 bytes, found {found}");
            let help = "the format of messages without a schema's number is 'avro', 'json', …";
            Err((message, format!("{help}; {SKIP_HELP}")))
        }
    }
}

/// The messages, each with a frame, and where each begins.
fn framed(block: &Block, messages: &MessageBounds) -> (Vec<u8>, Vec<usize>) {
    let mut data = Vec::with_capacity(block.data.len() + messages.len() * FRAME);
    let mut bounds = vec![0];
    for at in 0..messages.len() {
        data.extend_from_slice(&[0; FRAME]);
        data.extend_from_slice(&block.data[messages.range(at)]);
        bounds.push(data.len());
    }
    (data, bounds)
}
