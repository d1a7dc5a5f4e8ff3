//! CSV: delimiter, quotes, header, what counts as NULL, and the columns.
//!
//! The first record is a header if a column has values that the record's field does not fit, as
//! `price` above numbers. If all columns are strings, no field can show this; then the first record
//! is a header if all its fields could be names, and the user is told.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::DataType;
use memchr::memchr;
use millstream_contract::declaration::{NULL_WORDS, free_name};
use millstream_contract::wording::counted;

use super::sample::{Sample, first_line, headed};
use super::value::{TextShape, ValueStats, null_word, shape};
use super::{Inferred, InferredColumn, RECORDS_MAX, left_out};
use crate::csv::{Dialect, Index, header_name, index};
use crate::records::{Cut, RecordFormat};
use crate::source::OneFile;

/// Delimiters that are tried, in this order.
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// Records by which the delimiter is found.
const SNIFFED_RECORDS: usize = 1000;

/// Records in which a name of the header must not come as a value.
const COMPARED_RECORDS: usize = 1000;

/// The columns of the samples, of which the first is not empty. `tabs`: the file's name promises
/// tabulators. `files` are all of them.
pub(super) fn columns(samples: &[Sample], tabs: bool, files: &[OneFile]) -> Inferred {
    let Some((first, others)) = samples.split_first() else { return Inferred::default() };
    let dialect = Arc::new(dialect(first, tabs));
    let data = records(&first.head, first.whole, RECORDS_MAX, &dialect);
    let (rows, wrong) = index(data, &dialect, None, true);
    let more = data.len() < first.head.len();
    let mut scan = ColumnScan { dialect: &dialect, columns: Vec::new(), over_lines: false, more };
    scan.columns.resize_with(rows.fields(), ValueStats::default);
    scan.records(data, &rows, 1.min(rows.rows())..rows.rows());
    let head = HeaderGuess::new(data, &rows, &scan);
    if !head.is_header {
        // It would have come first; for the order of times that makes no difference in most files,
        // so it is scanned again from the front.
        scan.columns.iter_mut().for_each(|column| *column = ValueStats::default());
        scan.records(data, &rows, 0..rows.rows());
    }
    if !scan.over_lines {
        for part in &first.later {
            scan.block(part);
        }
    }
    let names = head.is_header.then_some(&head.names[..]);
    others.iter().for_each(|sample| scan.other_file(sample, names));
    let mut remarks = Vec::new();
    let mut options = Vec::new();
    if dialect.delimiter != b',' {
        let delimiter = if dialect.delimiter == b'\t' { "\\t" } else { char_text(&dialect) };
        options.push(("csv.field-delimiter".to_string(), delimiter.to_string()));
    }
    if dialect.quote.is_none() {
        options.push(("csv.disable-quote-character".to_string(), "true".to_string()));
        let quoted = Dialect { quote: Some(b'"'), ..(*dialect).clone() };
        let at = index(data, &quoted, None, true).1.map_or(0, |wrong| wrong.at);
        remarks.push(format!(
            "quotes are read as they stand, as with that on line {} most records would not have the \
             fields of the first ('csv.disable-quote-character' = 'false' if they enclose fields)",
            line_of(data, at)
        ));
    }
    if let Some(wrong) = wrong.filter(|_| rows.misshapen() > 0) {
        let line = line_of(data, wrong.at);
        remarks.push(format!(
            "the record on line {line} does not have the {} of the first record ('on_error' = 'skip' \
             leaves such records out)",
            counted(rows.fields() as u64, "field")
        ));
    }
    if head.is_header {
        remarks.extend(strange(&first.name, &head.names, &dialect, files));
    }
    let null_literal = null_literal(&mut scan.columns);
    let (header, names) = head.column_names(files.len() > samples.len(), &mut remarks);
    options.push(("csv.header".to_string(), header.to_string()));
    if let Some(literal) = null_literal {
        options.push(("csv.null-literal".to_string(), literal.to_string()));
        remarks.push(format!("fields with the text {literal} are read as NULL"));
    }
    let more = scan.more;
    let columns = names.into_iter().zip(scan.columns);
    let columns =
        columns.map(|(name, values)| InferredColumn::new(name, values.data_type(), values));
    Inferred { columns: columns.collect(), options, remarks, wrong: None, more }
}

/// The columns that are left out as only files other than the first have them.
fn strange(
    first: &str,
    names: &[String],
    dialect: &Arc<Dialect>,
    files: &[OneFile],
) -> Option<String> {
    let mut known: HashSet<String> = names.iter().map(|name| name.to_lowercase()).collect();
    let mut found = Vec::new();
    for file in headed(files).into_iter().filter(|file| *file.name != *first) {
        // The reader will say why one cannot be read.
        let Ok(line) = first_line(file) else { continue };
        let (rows, _) = index(&line, dialect, None, true);
        if rows.rows() == 0 {
            continue;
        }
        let theirs = field_names(&line, &rows, dialect);
        // What has none of the names is no such header.
        if !theirs.iter().any(|name| known.contains(&name.to_lowercase())) {
            continue;
        }
        let new: Vec<String> =
            theirs.into_iter().filter(|name| known.insert(name.to_lowercase())).collect();
        found.extend(new.into_iter().map(|name| format!("{name} ({})", file.name)));
    }
    left_out(first, &found)
}

fn line_of(data: &[u8], at: usize) -> usize {
    1 + data[..at.min(data.len())].iter().filter(|byte| **byte == b'\n').count()
}

fn char_text(dialect: &Dialect) -> &'static str {
    match dialect.delimiter {
        b';' => ";",
        b'|' => "|",
        _ => ",",
    }
}

/// As many whole records as there are, at most `records_max`.
fn records<'a>(data: &'a [u8], last: bool, records_max: usize, dialect: &Arc<Dialect>) -> &'a [u8] {
    if data.is_empty() {
        return data;
    }
    match crate::csv::CsvFormat::of(dialect).cut(data, last, records_max) {
        Cut::At(end) => &data[..end.min(data.len())],
        Cut::More | Cut::Unterminated(_) => data,
    }
}

/// Finds delimiter and quotes: with the right ones all records have as many fields.
fn dialect(sample: &Sample, tabs: bool) -> Dialect {
    let tried = DELIMITERS.into_iter().flat_map(|delimiter| {
        let dialect = |quote| Dialect { delimiter, quote, skip_errors: true, ..Dialect::default() };
        [dialect(Some(b'"')), dialect(None)]
    });
    let mut best: Option<((bool, usize, usize), Dialect)> = None;
    for dialect in tried {
        let shared = Arc::new(dialect.clone());
        let data = records(&sample.head, sample.whole, SNIFFED_RECORDS, &shared);
        let (found, _) = index(data, &dialect, None, true);
        let (rows, fields) = (found.rows(), found.fields());
        let permille = 1000 * rows / (rows + found.misshapen()).max(1);
        let usable = fields > 1 && permille >= 500;
        let promised = tabs && dialect.delimiter == b'\t' && fields > 1;
        let score = (usable || promised, permille + usize::from(promised) * 1000, fields);
        // Of equal ones the first counts: quotes are usual.
        if best.as_ref().is_none_or(|(known, _)| score > *known) {
            best = Some((score, dialect));
        }
    }
    match best {
        Some(((true, ..), dialect)) => dialect,
        _ => Dialect { skip_errors: true, ..Dialect::default() },
    }
}

/// Properties of the values, column by column.
struct ColumnScan<'a> {
    dialect: &'a Arc<Dialect>,
    columns: Vec<ValueStats>,
    /// Whether a record goes over several lines.
    over_lines: bool,
    /// Whether there are more records.
    more: bool,
}

impl ColumnScan<'_> {
    fn records(&mut self, data: &[u8], rows: &Index, range: std::ops::Range<usize>) {
        for row in range {
            for field in 0..rows.fields().min(self.columns.len()) {
                let (start, end) = rows.field(row, field);
                self.over_lines |= memchr(b'\n', &data[start..end]).is_some();
                self.field(field, &data[start..end]);
            }
        }
    }

    fn field(&mut self, field: usize, text: &[u8]) {
        let values = &mut self.columns[field];
        let inner = match self.dialect.quote {
            Some(quote) if text.len() > 1 && text[0] == quote => &text[1..text.len() - 1],
            _ => text,
        };
        if inner.is_empty() {
            values.add_null();
        } else if let Some(word) = null_word(text) {
            values.null_words |= 1 << word;
        } else {
            values.add(shape(inner));
        }
    }

    /// Records from further on in the file, or of another one.
    fn block(&mut self, data: &[u8]) {
        self.columns.iter_mut().for_each(ValueStats::gap);
        let (rows, _) = index(data, self.dialect, Some(self.columns.len()), true);
        self.records(data, &rows, 0..rows.rows().min(RECORDS_MAX));
    }

    /// Takes in another file, whose header may have the columns in another order.
    fn other_file(&mut self, sample: &Sample, names: Option<&[String]>) {
        let data = records(&sample.head, sample.whole, RECORDS_MAX, self.dialect);
        self.more |= data.len() < sample.head.len();
        let Some(names) = names else { return self.block(data) };
        let (rows, _) = index(data, self.dialect, None, true);
        if rows.rows() == 0 {
            return;
        }
        let theirs = field_names(data, &rows, self.dialect);
        let places: Option<Vec<usize>> =
            names.iter().map(|name| theirs.iter().position(|other| other == name)).collect();
        // Another header is for the reader to report.
        let Some(places) = places else {
            self.more = true;
            return;
        };
        self.columns.iter_mut().for_each(ValueStats::gap);
        for row in 1..rows.rows() {
            for (column, place) in places.iter().enumerate() {
                let (start, end) = rows.field(row, *place);
                self.field(column, &data[start..end]);
            }
        }
    }
}

fn field_names(data: &[u8], rows: &Index, dialect: &Dialect) -> Vec<String> {
    let field = |field| {
        let (start, end) = rows.field(0, field);
        header_name(&data[start..end], dialect)
    };
    (0..rows.fields()).map(field).collect()
}

/// The first record.
struct HeaderGuess {
    names: Vec<String>,
    is_header: bool,
    /// True if the fields' look is the only evidence.
    unsure: bool,
    empty: bool,
}

impl HeaderGuess {
    /// `scan` has seen the records behind it.
    fn new(data: &[u8], rows: &Index, scan: &ColumnScan<'_>) -> HeaderGuess {
        if rows.rows() == 0 {
            return HeaderGuess { names: Vec::new(), is_header: false, unsure: false, empty: true };
        }
        let names = field_names(data, rows, scan.dialect);
        let text = |name: &String| shape(name.as_bytes()) == TextShape::Text;
        let typed = |values: &ValueStats| values.count > 0 && values.data_type() != DataType::Utf8;
        let shown = scan.columns.iter().zip(&names).any(|(values, name)| {
            typed(values) && !name.is_empty() && text(name) && null_word(name.as_bytes()).is_none()
        });
        let all_text = names.iter().all(|name| name.is_empty() || text(name));
        let distinct = names.iter().collect::<HashSet<_>>().len() == names.len();
        let repeated = || {
            (1..rows.rows().min(COMPARED_RECORDS)).any(|row| {
                names.iter().enumerate().any(|(at, name)| {
                    let (start, end) = rows.field(row, at);
                    header_name(&data[start..end], scan.dialect) == *name
                })
            })
        };
        let looks_like =
            all_text && distinct && names.iter().all(|name| is_name(name)) && !repeated();
        let unsure = !shown && looks_like && rows.rows() > 1;
        let is_header = all_text && shown || looks_like;
        HeaderGuess { names, is_header, unsure, empty: rows.rows() == 1 && is_header }
    }

    /// The option `csv.header`, and a name for each column.
    /// `more`: there are other files.
    fn column_names(self, more: bool, remarks: &mut Vec<String>) -> (&'static str, Vec<String>) {
        if !self.is_header {
            return ("false", (1..=self.names.len()).map(|number| format!("c{number}")).collect());
        }
        if self.empty {
            let place = if more { " in the files that were looked into" } else { "" };
            remarks.push(format!("there are no records{place}, so all columns are STRING"));
        } else if self.unsure {
            remarks.push(
                "the first line is taken for a header; if it is a record, say so with \
                 'csv.header' = 'false'"
                    .to_string(),
            );
        }
        let all: HashSet<String> = self.names.iter().cloned().collect();
        let (mut taken, mut renamed) = (HashSet::new(), false);
        let mut names = Vec::with_capacity(self.names.len());
        for (at, name) in self.names.into_iter().enumerate() {
            let unique = if !name.is_empty() && !taken.contains(&name) {
                name
            } else {
                renamed = true;
                let wanted = if name.is_empty() { "column" } else { &name };
                let new = free_name(&format!("{wanted}_{}", at + 1), &(&all | &taken));
                let what = if name.is_empty() { "has no name" } else { "has a name twice" };
                remarks.push(format!("the header {what}: field {} is called {new}", at + 1));
                new
            };
            taken.insert(unique.clone());
            names.push(unique);
        }
        (if renamed { "skip" } else { "true" }, names)
    }
}

/// Whether a text could be a column's name.
fn is_name(text: &str) -> bool {
    let starts = text.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_');
    let part = |c: char| c.is_alphanumeric() || "_-. ()/%#$".contains(c);
    starts && text.chars().count() <= 64 && text.chars().all(part)
}

/// The word that stands for NULL where otherwise a column would be no STRING. Other columns take
/// such words as values.
fn null_literal(columns: &mut [ValueStats]) -> Option<&'static str> {
    let helped = |word: usize, values: &ValueStats| {
        values.null_words == 1 << word && values.count > 0 && values.data_type() != DataType::Utf8
    };
    let count = |word: usize| columns.iter().filter(|values| helped(word, values)).count();
    let (count, word) = (0..NULL_WORDS.len()).map(|word| (count(word), word)).max_by_key(
        // Of equal ones, the first.
        |(count, word)| (*count, usize::MAX - word),
    )?;
    let chosen = (count > 0).then_some(word);
    for values in columns.iter_mut().filter(|values| values.null_words != 0) {
        match chosen {
            Some(word) if values.null_words == 1 << word => values.add_null(),
            _ => values.add(TextShape::Text),
        }
    }
    Some(NULL_WORDS[chosen?])
}
