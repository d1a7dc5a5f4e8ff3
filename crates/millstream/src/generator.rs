//! The benchmark workloads as tables: `'connector' = 'generator', 'workload' = 'ysb'`.

use std::sync::Arc;
use std::task::Waker;

use arrow::datatypes::SchemaRef;
use millstream_contract::settings::closest;
use millstream_contract::table::{OpenOptions, Position, Split, SplitPoll, Table, TableOptions};
use millstream_contract::wording::counted;
use millstream_contract::{Error, Result};
use millstream_workloads::{BatchIter, Spec, Workload, schema};

/// The data of a benchmark workload, generated while it is read.
#[derive(Debug)]
pub struct GeneratorTable {
    spec: Spec,
    splits: usize,
}

impl GeneratorTable {
    /// A table of `spec`'s records, dealt out to `splits` splits.
    pub fn new(spec: Spec, splits: usize) -> GeneratorTable {
        GeneratorTable { spec, splits: splits.max(1) }
    }

    /// From the options `workload`, `number-of-rows`, `keys` and `splits`. Columns may be left out
    /// of the declaration, but those that are declared must be the workload's.
    pub(crate) fn from_options(options: &TableOptions) -> Result<GeneratorTable> {
        let error = |option: &str, message: String, help: String| Error::Option {
            table: options.name.clone(),
            option: option.to_string(),
            message,
            help,
        };
        const KNOWN: [&str; 5] = ["connector", "workload", "number-of-rows", "keys", "splits"];
        if let Some(key) = options.options.keys().find(|k| !KNOWN.contains(&k.as_str())) {
            let like = closest(key, KNOWN.into_iter());
            let help = like.map_or(format!("the options are {}", KNOWN.join(", ")), |name| {
                format!("did you mean '{name}'?")
            });
            return Err(error(key, "there is no such option".into(), help));
        }
        let names = Workload::names().join(", ");
        let name = options.options.get("workload").ok_or_else(|| {
            error("workload", "it is missing".into(), format!("give one of {names}"))
        })?;
        let workload = Workload::from_name(name).ok_or_else(|| {
            let help = closest(name, Workload::names().into_iter())
                .map_or(format!("use one of {names}"), |n| format!("did you mean '{n}'?"));
            error("workload", format!("there is no workload '{name}'"), help)
        })?;
        let number = |key: &str, max: u64| -> Result<Option<u64>> {
            let Some(text) = options.options.get(key) else { return Ok(None) };
            let number = text.parse::<u64>().ok().filter(|n| (1..=max).contains(n));
            let wrong = || error(key, format!("'{text}' does not fit"), format!("1 to {max}"));
            number.map(Some).ok_or_else(wrong)
        };
        let mut spec = Spec::new(workload);
        spec.records = number("number-of-rows", u64::MAX)?.unwrap_or(spec.records);
        spec.keys = number("keys", u32::MAX.into())?;
        let splits = number("splits", 256)?.unwrap_or(1) as usize;
        let own = schema(workload);
        if options.schema.fields() != own.fields() {
            let columns: Vec<String> = own
                .fields()
                .iter()
                .map(|f| format!("{} {} NOT NULL", f.name(), sql_type(f.data_type())))
                .collect();
            return Err(error(
                "workload",
                format!("the columns of table '{}' are not those of '{name}'", options.name),
                format!("declare exactly ({})", columns.join(", ")),
            ));
        }
        Ok(GeneratorTable::new(spec, splits))
    }
}

fn sql_type(data_type: &arrow::datatypes::DataType) -> String {
    millstream_sql::sql_type_name(data_type)
}

impl Table for GeneratorTable {
    fn schema(&self) -> SchemaRef {
        schema(self.spec.workload)
    }

    fn bounded(&self) -> bool {
        true
    }

    fn open(&self, projection: &[usize], options: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
        let split = |number| -> Box<dyn Split> {
            let name = format!("generator {}, shard {number}", self.spec.workload.name());
            let mut batches = BatchIter::new(&self.spec, number, self.splits, options.batch_rows);
            // Draws follow from each other, so going on means drawing again what came before.
            let given = options.from(&name).0.first().map_or(0, |given| *given);
            batches.by_ref().take(given as usize).for_each(drop);
            Box::new(GeneratorSplit { name, batches, given, projection: projection.into() })
        };
        Ok((0..self.splits).map(split).collect())
    }

    fn describe(&self, projection: &[usize]) -> String {
        let of = schema(self.spec.workload).fields().len();
        let (name, records) = (self.spec.workload.name(), counted(self.spec.records, "record"));
        let of = counted(of as u64, "column");
        format!("generator {name} ({records}, {} of {of})", projection.len())
    }
}

struct GeneratorSplit {
    name: String,
    batches: BatchIter,
    /// Batches handed out.
    given: u64,
    projection: Arc<[usize]>,
}

impl Split for GeneratorSplit {
    fn name(&self) -> &str {
        &self.name
    }

    fn position(&self) -> Position {
        Position(vec![self.given])
    }

    fn poll_next(&mut self, _now_us: i64, _waker: &Waker) -> Result<SplitPoll> {
        match self.batches.next() {
            Some(batch) => {
                self.given += 1;
                Ok(SplitPoll::Chunk(Box::new(batch.project(&self.projection)?)))
            }
            None => Ok(SplitPoll::Ended),
        }
    }
}
