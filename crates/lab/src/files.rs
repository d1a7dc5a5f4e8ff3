//! `millstream-lab bench files`: how fast a file is read: a windowed count and sum per key, with a
//! filter, over a file of six columns.
//!
//! The file is generated and written by Millstream itself, in the format that is asked for.
//! `tests/file_speed.py` gives the same file to another engine, by turns in one run, and compares
//! the answers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Float64Type, Int64Type};
use millstream::program::{SessionControl, counted, grouped};
use millstream::{CollectSink, RowOrder, Session, Settings};
use serde_json::json;

use crate::failure::{fail, note, print};
use crate::folder::Folder;
use crate::{Failure, peak_rss_bytes, round};

/// The formats of files.
pub const FORMATS: [&str; 4] = ["csv", "ndjson", "parquet", "arrow"];

/// The columns of the file.
const COLUMNS: &str =
    "ts TIMESTAMP(3), user_id BIGINT, price DOUBLE, quantity INT, country STRING, page STRING";

/// A file to read.
#[derive(Debug, Clone)]
pub struct Files {
    /// One of [`FORMATS`].
    pub format: String,
    /// How many it has.
    pub records: u64,
    /// How many keys.
    pub keys: u64,
    /// Where the file is; it is made if it is not there, and then stays. `None`: a temporary one.
    pub file: Option<PathBuf>,
    /// Makes the file and stops.
    pub generate_only: bool,
    /// Of the job that reads.
    pub settings: Settings,
    /// Whether one JSON object is printed, rather than a line for people.
    pub json: bool,
}

/// Sums over all rows of the query.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Answer {
    rows: u64,
    records: i64,
    sum: f64,
}

impl Files {
    /// Measures, and prints what came out.
    ///
    /// # Errors
    /// If the file cannot be written or read.
    pub fn run(&self) -> Result<(), Failure> {
        let folder = Folder::new("files")?;
        let path = match &self.file {
            Some(path) => std::path::absolute(path).map_err(|e| fail(&e))?,
            None => folder.path().join(format!("events.{}", self.format)),
        };
        if !path.exists() {
            self.generate(&path)?;
        }
        if self.generate_only {
            return Ok(());
        }
        let bytes = path.metadata().map_err(|e| fail(&e))?.len();
        let started = Instant::now();
        let (answer, records) = self.read(&path)?;
        let seconds = started.elapsed().as_secs_f64();
        if self.file.is_none() && records != self.records {
            return Err(fail(&format!("{records} records of {} were read", self.records)));
        }
        self.report(&answer, records, bytes, seconds)
    }

    fn report(
        &self,
        answer: &Answer,
        records: u64,
        bytes: u64,
        seconds: f64,
    ) -> Result<(), Failure> {
        let rate = records as f64 / seconds;
        if self.json {
            let object = json!({
                "workload": "files",
                "format": self.format,
                "workers": self.settings.workers,
                "records": records,
                "input_bytes": bytes,
                "seconds": round(seconds, 6),
                "records_per_second": rate as u64,
                "rows": answer.rows,
                "counted": answer.records,
                "sum": answer.sum,
                "peak_rss_bytes": peak_rss_bytes(),
            });
            return print(&object.to_string());
        }
        print(&format!(
            "{} of {} with {}: {seconds:.3} s, {} records/s, {:.0} MB/s, {}",
            counted(records, "record"),
            self.format,
            counted(self.settings.workers as u64, "worker"),
            grouped(rate as u64),
            bytes as f64 / seconds / 1e6,
            counted(answer.rows, "row"),
        ))
    }

    /// Writes the file: a single worker writes a file in a directory, from where it is moved.
    fn generate(&self, path: &Path) -> Result<(), Failure> {
        note(&format!("writing {} to {}", counted(self.records, "record"), path.display()));
        let parts = path.with_extension("parts");
        let mut session = Session::new(".");
        session.settings_mut().set("workers", "1").map_err(|e| fail(&e.message))?;
        let header = if self.format == "csv" { ", 'csv.header' = 'true'" } else { "" };
        let script = format!(
            "CREATE TABLE generated ({COLUMNS}) WITH ('connector' = 'datagen', 'seed' = '1',
                 'number-of-rows' = '{}', 'splits' = '1', 'fields.ts.kind' = 'sequence',
                 'fields.ts.start' = '2024-01-01 00:00:00', 'fields.ts.step' = '1 ms',
                 'fields.user_id.min' = '0', 'fields.user_id.max' = '{}',
                 'fields.price.min' = '0', 'fields.price.max' = '1000',
                 'fields.quantity.min' = '1', 'fields.quantity.max' = '100',
                 'fields.country.length' = '2', 'fields.page.length' = '16');
             CREATE TABLE file ({COLUMNS}) WITH ('connector' = 'file', 'path' = '{}',
                 'format' = '{}'{header});
             INSERT INTO file SELECT * FROM generated;",
            self.records,
            self.keys.max(1) - 1,
            quoted(&parts),
            self.format,
        );
        let jobs = session.submit(&script).map_err(|e| fail(&e))?;
        jobs.wait().map_err(|e| fail(&e))?;
        let written = std::fs::read_dir(&parts).map_err(|e| fail(&e))?.flatten();
        let mut written = written.map(|entry| entry.path()).filter(|path| is_part(path));
        let (Some(part), None) = (written.next(), written.next()) else {
            return Err(fail(&"the file was not written as one"));
        };
        std::fs::rename(part, path).map_err(|e| fail(&e))?;
        std::fs::remove_dir_all(&parts).map_err(|e| fail(&e))
    }

    /// Reads the file; returns the answer and the number of records.
    fn read(&self, path: &Path) -> Result<(Answer, u64), Failure> {
        let mut session = Session::new(".");
        *session.settings_mut() = self.settings.clone();
        let script = format!(
            "CREATE TABLE events ({COLUMNS}, WATERMARK FOR ts AS ts)
             WITH ('connector' = 'file', 'path' = '{}', 'format' = '{}');
             SELECT window_start, user_id, COUNT(*) AS n, SUM(price) AS s
             FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
             WHERE quantity > 20
             GROUP BY window_start, window_end, user_id;",
            quoted(path),
            self.format,
        );
        let sink = Arc::new(CollectSink::new(RowOrder::Any));
        let stats = session.run(&script, sink.clone()).map_err(|e| fail(&e))?;
        let mut answer = Answer::default();
        for batch in sink.take() {
            answer.add(&batch);
        }
        Ok((answer, stats.records))
    }
}

impl Answer {
    /// Adds rows of the query.
    fn add(&mut self, rows: &RecordBatch) {
        self.rows += rows.num_rows() as u64;
        let (n, s) = (rows.column(2).as_primitive::<Int64Type>(), rows.column(3));
        self.records += n.values().iter().sum::<i64>();
        self.sum += s.as_primitive::<Float64Type>().values().iter().sum::<f64>();
    }
}

/// A path within quotes of SQL.
fn quoted(path: &Path) -> String {
    path.display().to_string().replace('\'', "''")
}

fn is_part(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("part-"))
}
