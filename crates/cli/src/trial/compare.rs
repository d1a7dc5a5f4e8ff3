//! Differences between actual and expected rows: missing rows, surplus rows, and their windows.

use std::collections::{HashMap, VecDeque};

use millstream::program::grouped;

use super::records::{Record, RowFormat, columns, fields, records};

/// Maximum number of different rows shown.
const SHOWN: usize = 10;

/// Output of one statement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Block {
    pub(crate) text: String,
    /// Whether the order of its rows counts: the query has ORDER BY.
    pub(crate) ordered: bool,
}

/// Describes how blocks differ from an expected text, called `name` in messages. `None` if the rows
/// are the same.
pub(crate) fn difference(
    name: &str,
    expected: &str,
    blocks: &[Block],
    format: RowFormat,
) -> Option<String> {
    // Lines of JSON do not say which query they are of.
    let joined: String = blocks.iter().map(|block| block.text.as_str()).collect();
    let joined = [Block { text: joined, ordered: blocks.len() == 1 && blocks[0].ordered }];
    let blocks = if format == RowFormat::Ndjson { &joined[..] } else { blocks };
    let expected = records(expected, format);
    let mut lines = Vec::new();
    let mut rest = &expected[..];
    for (number, block) in blocks.iter().enumerate() {
        let came = records(&block.text, format);
        let (header, came) = match format {
            RowFormat::Csv => {
                came.split_first().map_or(("", &came[..]), |(h, rows)| (h.text, rows))
            }
            RowFormat::Ndjson => ("", &came[..]),
        };
        if format == RowFormat::Csv {
            match rest.split_first() {
                Some((first, rows)) if first.text == header => rest = rows,
                first => {
                    let place = first.map_or(String::new(), |(r, _)| format!(":{}", r.line));
                    let found = first.map_or("nothing", |(first, _)| first.text);
                    lines.push(format!("the columns differ, {name}{place}\n- {found}\n+ {header}"));
                    return Some(lines.join("\n"));
                }
            }
        }
        let end = blocks.get(number + 1).and_then(|next| {
            let header = records(&next.text, format).first().map_or("", |record| record.text);
            rest.iter().position(|record| record.text == header)
        });
        if let (None, Some(next)) =
            (end, blocks.get(number + 1).filter(|_| format == RowFormat::Csv))
        {
            let wanted = records(&next.text, format).first().map_or("", |record| record.text);
            if let Some(found) = alike(wanted, rest, came) {
                let Record { text, line } = found;
                lines.push(format!("the columns differ, {name}:{line}\n- {text}\n+ {wanted}"));
                return Some(lines.join("\n"));
            }
        }
        let (own, behind) = rest.split_at(end.unwrap_or(rest.len()));
        rest = behind;
        // A row of one column may be empty; else it is a line to look at.
        let one = format == RowFormat::Csv && fields(header).len() == 1;
        let is_row = |record: &&Record<'_>| one || !record.text.is_empty();
        let own: Vec<Record<'_>> = own.iter().filter(is_row).cloned().collect();
        lines.extend(Rows { name, header, format }.compare(&own, came, block.ordered));
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// The line that was probably meant to be this header: it has one of the header's names, and is no
/// actual row.
fn alike<'a>(
    header: &str,
    expected: &'a [Record<'a>],
    came: &[Record<'_>],
) -> Option<&'a Record<'a>> {
    let names = fields(header);
    let is_row = |record: &Record<'_>| came.iter().any(|row| row.text == record.text);
    let has_name = |record: &Record<'_>| fields(record.text).iter().any(|it| names.contains(it));
    expected.iter().find(|record| has_name(record) && !is_row(record))
}

/// The rows of a block, as messages name them.
struct Rows<'a> {
    name: &'a str,
    header: &'a str,
    format: RowFormat,
}

/// Different rows of a window, or without a window.
struct Group<'a> {
    window: Option<String>,
    missing: Vec<&'a Record<'a>>,
    extra: Vec<(usize, &'a Record<'a>)>,
}

impl Rows<'_> {
    /// The differences, in lines.
    fn compare(&self, expected: &[Record<'_>], came: &[Record<'_>], ordered: bool) -> Vec<String> {
        let mut open: HashMap<&str, VecDeque<&Record<'_>>> = HashMap::new();
        for record in expected {
            open.entry(record.text).or_default().push_back(record);
        }
        let extra: Vec<(usize, &Record<'_>)> = (1..)
            .zip(came)
            .filter(|(_, row)| open.get_mut(row.text).and_then(VecDeque::pop_front).is_none())
            .collect();
        let mut missing: Vec<&Record<'_>> = open.into_values().flatten().collect();
        missing.sort_by_key(|record| record.line);
        if missing.is_empty() && extra.is_empty() {
            let differ = |(_, (e, c)): &(usize, (&Record<'_>, &Record<'_>))| e.text != c.text;
            let first = (1..).zip(expected.iter().zip(came)).find(differ).filter(|_| ordered);
            return first.map_or(Vec::new(), |(row, (expected, came))| {
                vec![
                    format!(
                        "the rows come in another order, from row {row} on ({}:{})",
                        self.name, expected.line
                    ),
                    format!("- {}", expected.text),
                    format!("+ {}", came.text),
                ]
            });
        }
        self.tell(&self.groups(missing, extra))
    }

    /// Groups rows by window, in the order in which they came.
    fn groups<'a>(
        &self,
        missing: Vec<&'a Record<'a>>,
        extra: Vec<(usize, &'a Record<'a>)>,
    ) -> Vec<Group<'a>> {
        let mut groups: Vec<Group<'a>> = Vec::new();
        let mut group = |window: Option<String>| {
            groups.iter().position(|group| group.window == window).unwrap_or_else(|| {
                groups.push(Group { window, missing: Vec::new(), extra: Vec::new() });
                groups.len() - 1
            })
        };
        let places: Vec<usize> = missing.iter().map(|r| group(self.window(r.text))).collect();
        let others: Vec<usize> = extra.iter().map(|(_, r)| group(self.window(r.text))).collect();
        for (record, at) in missing.into_iter().zip(places) {
            groups[at].missing.push(record);
        }
        for (record, at) in extra.into_iter().zip(others) {
            groups[at].extra.push(record);
        }
        groups
    }

    /// The window that a row is of, if its columns say so.
    fn window(&self, row: &str) -> Option<String> {
        let columns = columns(row, self.header, self.format);
        let of = |name: &str| columns.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
        match (of("window_start"), of("window_end"), of("window_time")) {
            (Some(start), Some(end), _) => Some(format!("window {start} to {end}")),
            (Some(start), None, _) => Some(format!("window from {start} on")),
            (None, Some(end), _) => Some(format!("window up to {end}")),
            (None, None, Some(time)) => Some(format!("window up to {time}")),
            (None, None, None) => None,
        }
    }

    fn tell(&self, groups: &[Group<'_>]) -> Vec<String> {
        let missing: usize = groups.iter().map(|group| group.missing.len()).sum();
        let extra: usize = groups.iter().map(|group| group.extra.len()).sum();
        let rows = |n: usize| match n {
            1 => "1 row".to_string(),
            n => format!("{} rows", grouped(n as u64)),
        };
        let mut lines = vec![format!(
            "{}: {} did not come (-), {} not expected (+)",
            self.name,
            rows(missing),
            rows(extra)
        )];
        let mut shown = 0;
        for group in groups {
            if shown >= SHOWN {
                break;
            }
            lines.extend(group.window.clone());
            for record in group.missing.iter().take(SHOWN - shown.min(SHOWN)) {
                lines.push(format!("- {}  ({}:{})", record.text, self.name, record.line));
                shown += 1;
            }
            for (row, record) in group.extra.iter().take(SHOWN) {
                lines.push(format!("+ {}  (row {row})", record.text));
                lines.extend(self.near(record.text, &group.missing));
                shown += 1;
            }
        }
        if missing + extra > shown {
            lines.push(format!("and {} more rows", grouped((missing + extra - shown) as u64)));
        }
        lines
    }

    /// Differences between a row and the row that it probably should have been.
    fn near(&self, row: &str, missing: &[&Record<'_>]) -> Option<String> {
        let own = columns(row, self.header, self.format);
        // A row of CSV with more fields than the header has lacks the rest in `columns`.
        let width = |text: &str| match self.format {
            RowFormat::Csv => fields(text).len(),
            RowFormat::Ndjson => columns(text, "", self.format).len(),
        };
        let missing = missing.iter().filter(|other| width(other.text) == width(row));
        let differing = |other: &&Record<'_>| {
            let other = columns(other.text, self.header, self.format);
            let differ = own.iter().zip(other).filter(|(own, other)| *own != other);
            differ.map(|((name, own), (_, other))| (name.clone(), other, own.clone())).collect()
        };
        let nearest: Vec<(String, String, String)> = missing.map(differing).min_by_key(Vec::len)?;
        if nearest.is_empty() || nearest.len() * 2 > own.len() {
            return None;
        }
        let texts = nearest.iter().map(|(name, expected, came)| {
            let value =
                |text: &str| if text.is_empty() { "nothing".into() } else { text.to_string() };
            format!("{name}: {} expected, {} came", value(expected), value(came))
        });
        Some(format!("    {}", texts.collect::<Vec<_>>().join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(text: &str, ordered: bool) -> Block {
        Block { text: text.into(), ordered }
    }

    fn csv(expected: &str, came: &[Block]) -> Option<String> {
        difference("expected.csv", expected, came, RowFormat::Csv)
    }

    #[test]
    fn order_matters_where_the_query_says_so() {
        let came = "k,n\na,1\nb,2\n";
        assert_eq!(csv("k,n\nb,2\na,1\n", &[block(came, false)]), None);
        assert_eq!(csv("k,n\r\na,1\r\nb,2", &[block(came, true)]), None);
        let told = csv("k,n\nb,2\na,1\n", &[block(came, true)]).unwrap();
        assert!(told.contains("from row 1 on (expected.csv:2)\n- b,2\n+ a,1"), "{told}");
    }

    #[test]
    fn an_empty_line_is_a_row_of_one_column_alone() {
        assert_eq!(csv("k,n\na,1\n\nb,2\n", &[block("k,n\na,1\nb,2\n", false)]), None);
        assert!(csv("k\n\n", &[block("k\n", false)]).is_some());
        assert_eq!(csv("k\n\n", &[block("k\n\n", false)]), None);
        let (json, came) = ("{\"a\":1}\n\n{\"a\":2}\n", block("{\"a\":1}\n{\"a\":2}\n", false));
        assert_eq!(difference("expected.ndjson", json, &[came], RowFormat::Ndjson), None);
    }

    #[test]
    fn rows_are_counted() {
        let told = csv("k\na\na\n", &[block("k\na\n", false)]).unwrap();
        assert_eq!(
            told,
            "expected.csv: 1 row did not come (-), 0 rows not expected (+)\n- a  (expected.csv:3)"
        );
        let told = csv("k\na\n", &[block("k\na\na\n", false)]).unwrap();
        assert!(told.contains("0 rows did not come (-), 1 row not expected (+)\n+ a  (row 2)"));
    }

    #[test]
    fn a_difference_names_the_window_and_the_column() {
        let expected = "window_start,k,n\n10:00,a,1\n10:10,a,2\n";
        let told = csv(expected, &[block("window_start,k,n\n10:00,a,1\n10:10,a,3\n", false)]);
        assert_eq!(
            told.unwrap(),
            "expected.csv: 1 row did not come (-), 1 row not expected (+)\n\
             window from 10:10 on\n- 10:10,a,2  (expected.csv:3)\n+ 10:10,a,3  (row 2)\n    \
             n: 2 expected, 3 came"
        );
        let line = r#"{"window_start":"10:00","window_end":"10:10","n":1}"#;
        let told = difference("e", "", &[block(line, false)], RowFormat::Ndjson).unwrap();
        assert!(told.contains("\nwindow 10:00 to 10:10\n+ {"), "{told}");
    }

    #[test]
    fn rows_of_other_lengths_are_not_alike() {
        let told = csv("k,n\na,1,2\n", &[block("k,n\na,1\n", false)]).unwrap();
        assert!(told.ends_with("- a,1,2  (expected.csv:2)\n+ a,1  (row 1)"), "{told}");
    }

    #[test]
    fn several_queries_stand_one_after_the_other() {
        let blocks = [block("a\n1\n", false), block("b\n2\n", false)];
        assert_eq!(csv("a\n1\nb\n2\n", &blocks), None);
        let told = csv("a\n1\nb\n3\n", &blocks).unwrap();
        assert!(told.contains("- 3  (expected.csv:4)\n+ 2  (row 1)"), "{told}");
        assert!(csv("a\n1\n", &blocks).unwrap().contains("- nothing\n+ b"));
        assert!(csv("c\n1\nb\n2\n", &blocks).unwrap().contains("expected.csv:1\n- c\n+ a"));
        // A header that is wrong is no row of the block before it.
        let told = csv("a\n1\nx,b\n2\n", &[block("a\n1\n", false), block("b,y\n2\n", false)]);
        assert_eq!(told.unwrap(), "the columns differ, expected.csv:3\n- x,b\n+ b,y");
        let lines = [block("{}\n", false), block("[]\n", false)];
        assert_eq!(difference("e", "{}\n[]\n", &lines, RowFormat::Ndjson), None);
        assert!(difference("e", "{}\n[]\n1\n", &lines, RowFormat::Ndjson).is_some());
    }

    #[test]
    fn what_is_much_is_cut_off() {
        let rows: String = (0..50).map(|n| format!("{n}\n")).collect();
        let told = csv("k\n", &[block(&format!("k\n{rows}"), false)]).unwrap();
        assert!(told.contains("50 rows not expected") && told.ends_with("and 40 more rows"));
    }
}
