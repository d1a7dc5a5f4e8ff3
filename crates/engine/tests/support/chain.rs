//! Chains of aggregations, each over the rows of the one before, and their right results, computed
//! one after the other.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::*;
use arrow::compute::kernels::cmp::gt_eq;
use arrow::datatypes::*;
use millstream_contract::Result;
use millstream_contract::expr::{Evaluate, Expr};
use millstream_contract::plan::*;
use millstream_contract::table::Table;

use super::{Random, Record, call, key, query};

/// One aggregation: `SELECT window_start, keys, COUNT(*) AS rows, n, total GROUP BY window, keys
/// HAVING COUNT(*) >= at_least`, where `n` counts records and `total` adds their amounts.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    /// Size and offset; `None`: over all there is.
    pub(crate) window_ms: Option<(i64, i64)>,
    /// How many of the columns `key` and `name`.
    pub(crate) keys: usize,
    pub(crate) at_least: i64,
}

#[derive(Debug, Clone)]
pub(crate) struct Chain {
    pub(crate) links: Vec<Link>,
    pub(crate) delay_us: i64,
    pub(crate) lateness_ms: i64,
}

/// Without its window: the NULL key comes last.
type Group = (bool, Option<i64>, String);

#[derive(Debug, Clone, Default)]
struct Sums {
    rows: i64,
    n: Option<i64>,
    total: Option<i64>,
}

impl Sums {
    fn add(&mut self, n: Option<i64>, total: Option<i64>) {
        let add = |sum: &mut Option<i64>, more: Option<i64>| {
            *sum = more.map(|more| sum.unwrap_or(0) + more).or(*sum);
        };
        self.rows += 1;
        add(&mut self.n, n);
        add(&mut self.total, total);
    }
}

/// By window start (0 without windows) and group.
type Rows = BTreeMap<(i64, Group), Sums>;

impl Link {
    fn group(&self, key: Option<i64>, name: &str) -> Group {
        let key = key.filter(|_| self.keys > 0);
        let name = if self.keys > 1 { name } else { "" };
        (key.is_none(), key, name.into())
    }

    fn start_of(&self, ts_ms: i64) -> i64 {
        self.window_ms.map_or(0, |(size, offset)| (ts_ms - offset).div_euclid(size) * size + offset)
    }

    /// What is left of what was added up.
    fn finish(&self, mut rows: Rows, counts: bool) -> Rows {
        if rows.is_empty() && self.keys == 0 && self.window_ms.is_none() {
            // Over nothing, a global aggregate has a row; a sum of nothing is NULL.
            let n = counts.then_some(0);
            rows.insert((0, self.group(None, "")), Sums { rows: 0, n, total: None });
        }
        rows.retain(|_, sums| sums.rows >= self.at_least);
        rows
    }
}

impl Chain {
    /// Two or three links; everything follows from chance.
    pub(crate) fn any(random: &mut Random) -> Chain {
        let mut links: Vec<Link> = Vec::new();
        for _ in 0..2 + random.below(2) {
            let window_ms = match links.last().map(|link| link.window_ms) {
                None => [None, Some((50, 0)), Some((500, 0)), Some((1000, 0)), Some((300, 70))]
                    [random.below(5) as usize],
                Some(None) => None,
                Some(Some((size, offset))) => [
                    None,
                    Some((size, offset)),
                    Some((2 * size, offset)),
                    Some((3 * size, 0)),
                    Some((700, 30)),
                    Some((100_000, 0)),
                ][random.below(6) as usize],
            };
            let keys = match links.last() {
                None => 2 - random.below(2) as usize,
                Some(link) => link.keys - random.below(link.keys as u64 + 1) as usize,
            };
            let at_least = if random.below(3) == 0 { 2 } else { 0 };
            links.push(Link { window_ms, keys, at_least });
        }
        let delay_us = [0, 1, 100_000, 2_000_000][random.below(4) as usize];
        let lateness_ms = [0, 0, 700][random.below(3) as usize];
        Chain { links, delay_us, lateness_ms }
    }

    pub(crate) fn plan(&self, source: Arc<dyn Table>) -> Plan {
        let Plan { sources, .. } = query(source, Some(1), self.delay_us);
        let mut stages: Vec<Stage> = Vec::new();
        for (number, link) in self.links.iter().enumerate() {
            let from = number.checked_sub(1).map_or(Node::Source(0), Node::Stage);
            let schema = match number.checked_sub(1) {
                None => sources[0].schema.clone(),
                Some(before) => stages[before].output.clone(),
            };
            stages.push(Stage {
                names: vec![],
                inputs: vec![Input::all(from)],
                operator: Operator::Aggregate(link.aggregate(&schema)),
                output: link.output(),
            });
        }
        let outputs = vec![Output::of(stages.len() - 1)];
        Plan { sources, stages, outputs }
    }

    /// The rows, how many records are late, and how many are without a time.
    pub(crate) fn expected(&self, splits: &[Vec<Record>]) -> (Vec<String>, u64, u64) {
        let (first, others) = self.links.split_first().expect("a link");
        let (mut rows, mut late, mut null_time) = (Rows::new(), 0, 0);
        for split in splits {
            let mut watermark = i64::MIN;
            for record in split {
                let before = watermark;
                if let Some(ts) = record.ts_ms {
                    watermark = watermark.max(ts * 1000 - self.delay_us);
                }
                let start = match (first.window_ms, record.ts_ms) {
                    (None, _) => 0,
                    (Some(_), None) => {
                        null_time += 1;
                        continue;
                    }
                    (Some((size, _)), Some(ts)) => {
                        let start = first.start_of(ts);
                        if (start + size + self.lateness_ms) * 1000 <= before {
                            late += 1;
                            continue;
                        }
                        start
                    }
                };
                let group = first.group(record.key, &record.name);
                rows.entry((start, group)).or_default().add(Some(1), record.amount);
            }
        }
        rows = first.finish(rows, true);
        let mut before = first;
        for link in others {
            let mut next = Rows::new();
            for ((start, (_, key, name)), sums) in rows {
                let time = before.window_ms.map_or(0, |(size, _)| start + size - 1);
                let group = link.group(key, &name);
                next.entry((link.start_of(time), group)).or_default().add(sums.n, sums.total);
            }
            rows = link.finish(next, false);
            before = link;
        }
        (rows.into_iter().map(|(at, sums)| before.line(at, &sums)).collect(), late, null_time)
    }
}

pub(crate) const MS: DataType = DataType::Timestamp(TimeUnit::Millisecond, None);

impl Link {
    /// Over the table, or over rows of a link before.
    fn aggregate(&self, input: &Schema) -> Aggregate {
        use AggregateFunction::*;
        let int = DataType::Int64;
        let at = |name: &str| input.index_of(name).expect("a column");
        let names = [("key", DataType::Int64, true), ("name", DataType::Utf8, false)];
        let keys = names.into_iter().take(self.keys);
        let keys = keys.map(|(name, of, nullable)| key(name, at(name), of, nullable)).collect();
        let (n, total) = match input.index_of("n") {
            Ok(n) => (call(Sum, Some((n, int.clone(), true)), int.clone()), at("total")),
            Err(_) => (call(Count, None, int.clone()), at("amount")),
        };
        let total = call(Sum, Some((total, int.clone(), true)), int.clone());
        let aggregates = vec![call(Count, None, int), n, total];
        let mut fields = Vec::new();
        if self.window_ms.is_some() {
            fields.extend(
                ["window_start", "window_end", "window_time"].map(|n| Field::new(n, MS, false)),
            );
        }
        let output = self.output();
        let shown = usize::from(self.window_ms.is_some());
        fields.extend(output.fields()[shown..].iter().map(|field| field.as_ref().clone()));
        let first_key = fields.len() - 3 - self.keys;
        let window_start = (0..1).filter(|_| self.window_ms.is_some());
        let columns = window_start.chain(first_key..fields.len());
        let project = columns.map(Expr::Column).collect();
        let at_least = AtLeast { column: first_key + self.keys, least: self.at_least };
        Aggregate {
            windows_in_slice: 1,
            pairs: None,
            window: self.window_ms.map(|(size, offset)| {
                Tumble { size_us: size * 1000, offset_us: offset * 1000 }.into()
            }),
            keys,
            aggregates,
            fired: Arc::new(Schema::new(fields)),
            having: (self.at_least > 0).then(|| Expr::Computed(Arc::new(at_least))),
            project,
        }
    }

    fn output(&self) -> SchemaRef {
        let mut fields = Vec::new();
        if self.window_ms.is_some() {
            fields.push(Field::new("window_start", MS, false));
        }
        let keys =
            [Field::new("key", DataType::Int64, true), Field::new("name", DataType::Utf8, false)];
        fields.extend(keys.into_iter().take(self.keys));
        fields.push(Field::new("rows", DataType::Int64, false));
        fields.push(Field::new("n", DataType::Int64, true));
        fields.push(Field::new("total", DataType::Int64, true));
        Arc::new(Schema::new(fields))
    }

    fn line(&self, (start, (_, key, name)): (i64, Group), sums: &Sums) -> String {
        let show = |value: Option<i64>| value.map_or(String::new(), |value| value.to_string());
        let mut cells = Vec::new();
        if self.window_ms.is_some() {
            let at = TimestampMillisecondArray::from(vec![start]);
            cells.push(arrow::util::display::array_value_to_string(&at, 0).unwrap());
        }
        cells.extend([show(key), name].into_iter().take(self.keys));
        cells.extend([sums.rows.to_string(), show(sums.n), show(sums.total)]);
        cells.join("|")
    }
}

/// Whether a column is at least so much.
#[derive(Debug)]
pub(crate) struct AtLeast {
    pub(crate) column: usize,
    pub(crate) least: i64,
}

impl fmt::Display for AtLeast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {} >= {}", self.column, self.least)
    }
}

impl Evaluate for AtLeast {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let least = Int64Array::new_scalar(self.least);
        Ok(Arc::new(gt_eq(batch.column(self.column), &least)?))
    }
    fn data_type(&self) -> &DataType {
        &DataType::Boolean
    }
}
