//! Rows with numbers, each once in its topic.
//!
//! Rows of a job are numbered in their order. The marker of a transaction is the number behind its
//! last row, and the name of the *series* of numbers. So the marker says which rows are there.

use std::time::Duration;

use super::options::SinkOptions;
use crate::client::encode::NewRecord;
use crate::client::fault::{Fault, Outcome};
use crate::client::producer::{Marker, Producer};

/// Faults after which rows are given up.
const TRIES: usize = 5;

/// A marker of this age is written again: a broker forgets one after 7 days
/// (`offsets.retention.minutes`), and the producer's number with it
/// (`transactional.id.expiration.ms`).
pub(super) const MARKER_AGE: Duration = Duration::from_hours(24);

/// The calls of a producer that write rows.
pub(super) trait Write: Send + 'static {
    /// See [`Producer::write`].
    fn write(&mut self, rows: &[Row], marker: Option<&Marker>) -> Outcome<()>;
    /// See [`Producer::begin_again`].
    fn begin_again(&mut self) -> Outcome<()>;
    /// See [`Producer::marker`].
    fn marker(&mut self) -> Outcome<Option<Marker>>;
}

impl Write for Producer {
    fn write(&mut self, rows: &[Row], marker: Option<&Marker>) -> Outcome<()> {
        Producer::write(self, rows, marker)
    }

    fn begin_again(&mut self) -> Outcome<()> {
        Producer::begin_again(self)
    }

    fn marker(&mut self) -> Outcome<Option<Marker>> {
        Producer::marker(self)
    }
}

/// A row as a record, with its partition.
pub(super) type Row = (i32, NewRecord);

/// Where a job's rows begin that goes on: the number of rows before the cut, and the name of the
/// series of numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Base {
    pub(super) series: String,
    pub(super) rows: u64,
    /// Whether the spool has written the rows before. Otherwise rows behind were written by replay,
    /// perhaps, and come again.
    pub(super) spooled: bool,
}

impl Base {
    /// The number of the first row of a job that goes on, where rows below `known` are in Kafka.
    /// `varies`: the job computes other rows than before.
    pub(super) fn next(&self, known: u64, varies: bool) -> u64 {
        if varies && self.spooled { known } else { self.rows }
    }

    /// Begins the rows of a new job with the marker 0. So a job that goes on finds a marker of its
    /// series, or knows that the topic may have rows without a count.
    pub(super) fn begin(&self, producer: &mut Producer) -> Outcome<u64> {
        mark(producer, &self.series, 0).map(|()| 0)
    }

    /// Rows below this number are in Kafka, as the last marker says. The rows of the base have to
    /// be there.
    pub(super) fn known_rows(
        &self,
        producer: &mut Producer,
        options: &SinkOptions,
    ) -> Outcome<u64> {
        let id = options.producer.transactional_id.as_deref().unwrap_or_default();
        let lost = |message: String| Fault::Fatal {
            place: format!("transactional id '{}'", id.escape_debug()),
            message,
            help: "begin anew with --fresh and another 'sink.transactional-id-prefix', or write \
                   'at-least-once'"
                .into(),
        };
        match producer.marker()? {
            None => Err(lost(format!(
                "{} rows are in the topic, and the broker has forgotten how many more \
                 (offsets.retention.minutes)",
                self.rows
            ))),
            Some(marker) if !is_of(&marker, &self.series) => Err(lost(
                "another job has written with the same 'sink.transactional-id-prefix' since".into(),
            )),
            Some(marker) => {
                let rows = u64::try_from(marker.offset).unwrap_or(0);
                match rows >= self.rows {
                    true => Ok(rows),
                    false => Err(lost(format!(
                        "the checkpoint has {} rows written, and the broker only {rows}",
                        self.rows
                    ))),
                }
            }
        }
    }
}

fn is_of(marker: &Marker, series: &str) -> bool {
    marker.text == text_of(series)
}

fn marker_of(series: &str, rows: u64) -> Marker {
    let offset = i64::try_from(rows).unwrap_or(i64::MAX);
    Marker { offset, text: text_of(series) }
}

fn text_of(series: &str) -> String {
    format!("millstream {series}")
}

/// Writes a transaction. False after a fault that may pass: the producer has begun anew, and the
/// transaction may be there or not.
fn try_to_write(
    producer: &mut impl Write,
    rows: &[Row],
    marker: Option<&Marker>,
    faults: &mut usize,
) -> Outcome<bool> {
    match producer.write(rows, marker) {
        Ok(()) => Ok(true),
        Err(Fault::Retry(message) | Fault::Aborted(message)) if *faults < TRIES => {
            tracing::warn!(rows = rows.len(), "a transaction is written again: {message}");
            *faults += 1;
            producer.begin_again().map(|()| false)
        }
        Err(fault) => Err(fault),
    }
}

/// Writes the marker alone, in a transaction without rows.
pub(super) fn mark(producer: &mut impl Write, series: &str, rows: u64) -> Outcome<()> {
    let (marker, mut faults) = (marker_of(series, rows), 0);
    while !try_to_write(producer, &[], Some(&marker), &mut faults)? {}
    Ok(())
}

/// Writes rows, the first of which has the number `first`. With a `series` each row comes once: the
/// transactions have markers.
pub(super) fn write_rows(
    producer: &mut impl Write,
    series: Option<&str>,
    rows: &[Row],
    first: u64,
) -> Outcome<()> {
    let (mut rest, mut number, mut faults) = (rows, first, 0);
    while !rest.is_empty() {
        // After a fault a smaller transaction, which may be complete before its time-out.
        let now = &rest[..(rest.len() >> faults).max(1)];
        let end = number + now.len() as u64;
        let marker = series.map(|series| marker_of(series, end));
        let there = match try_to_write(producer, now, marker.as_ref(), &mut faults)? {
            true => end,
            false => {
                let marker = producer.marker()?.zip(series);
                let marker = marker.filter(|(marker, series)| is_of(marker, series));
                let there = marker.and_then(|(marker, _)| u64::try_from(marker.offset).ok());
                there.unwrap_or(0).clamp(number, end)
            }
        };
        rest = &rest[(there - number) as usize..];
        number = there;
    }
    Ok(())
}

/// A random number, for a new name.
pub(super) fn random() -> u128 {
    use ring::rand::SecureRandom;
    let mut bytes = [0; 16];
    // Without random numbers the clock has to do.
    if ring::rand::SystemRandom::new().fill(&mut bytes).is_err() {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        return now.unwrap_or_default().as_nanos();
    }
    u128::from_be_bytes(bytes)
}
