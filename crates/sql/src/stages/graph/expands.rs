//! Passes that make any number of rows of each: an UNNEST, and a lookup.

use millstream_contract::plan::{Element, Unnest};
use millstream_contract::table::Table;

use super::{Graph, Pass, Reader};
use crate::names::alike::all_alike;
use crate::names::catalog::{TableEntry, add_columns};
use crate::stages::nest::{By, Expanded, Expanding, Looked};
use crate::stages::schemas::{elements_schema, pair_schema, table_schema};
use crate::syntax::prelude::*;

/// Expansion of each row of a pass into several rows.
pub(crate) struct Expands {
    pub(crate) makes: Makes,
    /// Of the rows that come out.
    pub(crate) schema: DFSchema,
    /// The needed columns of these rows, complete once all readers are finished.
    pub(crate) used: BTreeSet<String>,
}

pub(crate) enum Makes {
    Elements(Elements),
    Lookup(Box<LookedUp>),
}

/// Columns that an UNNEST shows of the elements of the pass's last column, which has no name.
#[derive(Debug, PartialEq)]
pub(crate) struct Elements {
    pub(crate) outer: bool,
    /// With the names of the columns.
    pub(crate) shown: Vec<(String, Element)>,
}

/// A lookup with its table.
pub(crate) struct LookedUp {
    pub(crate) table: Arc<dyn Table>,
    pub(crate) body: Looked,
    /// The names of the body's columns.
    pub(crate) shown: Vec<String>,
    /// The columns of what comes out, once it is known which are needed.
    pub(crate) output: Vec<String>,
}

impl Expands {
    /// Whether another one makes the same of the same rows.
    pub(super) fn is_like(&self, other: &Expands) -> bool {
        self.makes.is_like(&other.makes)
    }
}

impl Makes {
    /// Whether another one makes the same of the same rows.
    pub(super) fn is_like(&self, other: &Makes) -> bool {
        match (self, other) {
            (Makes::Elements(own), Makes::Elements(other)) => own == other,
            (Makes::Lookup(own), Makes::Lookup(other)) => {
                own.shown == other.shown && is_like(&own.body, &other.body)
            }
            _ => false,
        }
    }

    /// The names of what is shown.
    pub(super) fn names(&self) -> Vec<&String> {
        match self {
            Makes::Elements(elements) => elements.shown.iter().map(|(name, _)| name).collect(),
            Makes::Lookup(lookup) => lookup.shown.iter().collect(),
        }
    }
}

impl LookedUp {
    /// Adds the lookup's own needs among its result columns.
    pub(crate) fn add_needs(&self, used: &mut BTreeSet<String>) {
        let needed = self.body.keys.iter().flatten().chain(&self.body.condition);
        needed.for_each(|expr| add_columns(expr, used));
    }
}

fn is_like(own: &Looked, other: &Looked) -> bool {
    let keys = |keys: &[[Expr; 2]]| keys.iter().flatten().cloned().collect::<Vec<_>>();
    Arc::ptr_eq(&own.entry, &other.entry)
        && (own.outer, own.nulls_are_equal) == (other.outer, other.nulls_are_equal)
        && all_alike(&own.filters, &other.filters)
        && all_alike(&own.columns, &other.columns)
        && all_alike(&keys(&own.keys), &keys(&other.keys))
        && all_alike(&own.condition, &other.condition)
}

impl Graph {
    /// The pass of an UNNEST or a lookup, and the table below it.
    pub(super) fn expanded(
        &mut self,
        rows: &Expanded,
        reader: &Reader<'_>,
    ) -> Result<(usize, Option<usize>)> {
        let (scan, below) = self.records(&rows.inner.input, reader)?;
        let below_it = below.and_then(|below| self.passes[below].expands.as_ref());
        let schema = match below_it {
            Some(expands) => expands.schema.clone(),
            None => table_schema(&self.scans[scan].entry)?,
        };
        let (columns, kept) = (rows.inner.columns.clone(), &rows.kept);
        let (makes, schema) = match &rows.by {
            By::Elements(body) => {
                let elements = elements_of(body, &rows.shown);
                let (shown, outer) = (&elements.shown, elements.outer);
                let schema = elements_schema(&columns, &schema, kept, shown, outer)?;
                (Makes::Elements(elements), schema)
            }
            By::Lookup(body) => {
                let side = (&body.columns[..], &table_schema(&body.entry)?, &rows.shown[..]);
                let schema = pair_schema((&columns, &schema, kept), side, body.outer)?;
                (Makes::Lookup(Box::new(looked_up(body, kept, &rows.shown, reader)?)), schema)
            }
        };
        let pass = Pass {
            scan,
            below,
            filters: rows.inner.filters.clone(),
            names: rows.kept.clone(),
            columns,
            query: reader.query,
            expands: Some(Expands { makes, schema, used: BTreeSet::new() }),
        };
        let known = self.passes.iter().position(|known| known.is_like(&pass));
        let number = known.unwrap_or_else(|| {
            self.passes.push(pass);
            self.passes.len() - 1
        });
        Ok((scan, Some(number)))
    }

    /// Expansion of results.
    pub(super) fn expanding(&self, expanding: &Expanding, reader: &Reader<'_>) -> Result<Makes> {
        let Expanding { kept, shown, by, .. } = expanding;
        Ok(match by {
            By::Elements(body) => Makes::Elements(elements_of(body, shown)),
            By::Lookup(body) => Makes::Lookup(Box::new(looked_up(body, kept, shown, reader)?)),
        })
    }
}

fn elements_of(body: &Unnest, shown: &[String]) -> Elements {
    let shown = shown.iter().cloned().zip(body.elements.iter().copied());
    Elements { outer: body.outer, shown: shown.collect() }
}

/// A lookup for rows with these columns.
fn looked_up(
    body: &Looked,
    kept: &[String],
    shown: &[String],
    reader: &Reader<'_>,
) -> Result<LookedUp> {
    let (body, shown) = (body.clone(), shown.to_vec());
    let table = side_table(&body, reader)?;
    let output = [kept, &shown].concat();
    Ok(LookedUp { table, body, shown, output })
}

/// The table that is looked up in: it can be read wholly, as often as it takes.
fn side_table(body: &Looked, reader: &Reader<'_>) -> Result<Arc<dyn Table>> {
    let TableEntry { name, left_out, .. } = &*body.entry;
    let refused = |message: String, help: &str| {
        let error = SqlError::unsupported(message).help(help);
        Err(match &body.place {
            Some(place) => error.at(Some(place.span)).in_source(&place.source),
            None => error,
        })
    };
    let table = (reader.open)(&body.entry)?;
    if !table.bounded() {
        let message =
            format!("table '{name}' never ends, and a lookup join reads it before all else");
        return refused(
            message,
            "look up in a table that ends: files, without 'follow'; or join within windows, or by event \
             time",
        );
    }
    if table.live() || table.read_once().is_some() {
        let message = format!(
            "table '{name}' can be read only once, and a lookup join reads it in each process, and again \
             when it has changed"
        );
        return refused(message, "save it in a file and look up in that");
    }
    if let Some(to) = &left_out.malformed {
        let message = format!(
            "malformed records of table '{name}' do not go to '{to}' where a lookup join reads it"
        );
        return refused(message, "give it the option 'on_error' = 'skip', or leave the option out");
    }
    Ok(table)
}
