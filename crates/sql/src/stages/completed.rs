//! A table with LIKE, completed with parts of the other table.

use crate::syntax::create_table::{ColumnDef, ColumnKind, CreateTable, OptionDef, WatermarkDef};
use crate::syntax::like::{Like, Merge};
use crate::syntax::prelude::*;

/// A table with what it takes from `other`, which was declared in `source`.
pub(crate) fn completed(
    own: &CreateTable,
    like: &Like,
    other: &CreateTable,
    source: &Arc<Source>,
) -> Result<CreateTable> {
    Ok(CreateTable {
        columns: like.columns(own, other, source)?,
        watermark: like.watermark(own, other, source)?,
        options: like.with(own, other)?,
        primary_key: like.primary_key(own, other)?,
        like: None,
        ..own.clone()
    })
}

impl Like {
    /// Both tables have something that may be there once.
    fn both(&self, what: String, option: &str) -> SqlError {
        let error = SqlError::name(format!("both tables have {what}"));
        error.at(Span::new(self.table.span)).help(match option {
            "" => "leave it out of one of them".to_string(),
            option => format!("write LIKE {} (OVERWRITING {option})", self.table),
        })
    }

    /// Treatment of columns of this kind, and the kind's name; `None` for physical columns, which
    /// are always copied.
    fn part_of(&self, column: &ColumnDef) -> Option<(Merge, &'static str)> {
        match column.kind {
            ColumnKind::Physical { .. } => None,
            ColumnKind::Computed(_) => Some((self.generated, "GENERATED")),
            ColumnKind::Metadata { .. } => Some((self.metadata, "METADATA")),
        }
    }

    fn columns(
        &self,
        own: &CreateTable,
        other: &CreateTable,
        source: &Arc<Source>,
    ) -> Result<Vec<ColumnDef>> {
        let mut columns: Vec<ColumnDef> = Vec::new();
        for column in &other.columns {
            let again = own.columns.iter().find(|own| own.name.value == column.name.value);
            let part = self.part_of(column);
            match (part, again) {
                (Some((Merge::Excluding, _)), _) => continue,
                (Some((Merge::Overwriting, option)), Some(again))
                    if self.part_of(again).is_some_and(|(_, own)| own == option) =>
                {
                    continue;
                }
                (part, Some(_)) => {
                    let option = part.map_or("", |(_, option)| option);
                    return Err(self.both(format!("a column '{}'", column.name.value), option));
                }
                (_, None) => {}
            }
            let from = column.source.clone().or_else(|| Some(source.clone()));
            columns.push(ColumnDef { source: from, ..column.clone() });
        }
        columns.extend(own.columns.iter().cloned());
        Ok(columns)
    }

    fn watermark(
        &self,
        own: &CreateTable,
        other: &CreateTable,
        source: &Arc<Source>,
    ) -> Result<Option<WatermarkDef>> {
        Ok(match (&own.watermark, &other.watermark, self.watermarks) {
            (own, None, _) | (own, _, Merge::Excluding) => own.clone(),
            (Some(_), Some(_), Merge::Including) => {
                return Err(self.both("a watermark".into(), "WATERMARKS"));
            }
            (Some(own), Some(_), Merge::Overwriting) => Some(own.clone()),
            (None, Some(other), _) => {
                let from = other.source.clone().or_else(|| Some(source.clone()));
                Some(WatermarkDef { source: from, ..other.clone() })
            }
        })
    }

    fn primary_key(&self, own: &CreateTable, other: &CreateTable) -> Result<Vec<Ident>> {
        match (&own.primary_key[..], &other.primary_key[..], self.constraints) {
            (own, [], _) | (own, _, Merge::Excluding) => Ok(own.to_vec()),
            ([], other, _) => Ok(other.to_vec()),
            _ => {
                let help = format!("write LIKE {} (EXCLUDING CONSTRAINTS)", self.table);
                Err(self.both("a PRIMARY KEY".into(), "").help(help))
            }
        }
    }

    fn with(&self, own: &CreateTable, other: &CreateTable) -> Result<Vec<OptionDef>> {
        let mut options: Vec<OptionDef> = Vec::new();
        for option in other.options.iter().filter(|_| self.options != Merge::Excluding) {
            if own.options.iter().any(|own| own.key == option.key) {
                if self.options == Merge::Including {
                    return Err(self.both(format!("an option '{}'", option.key), "OPTIONS"));
                }
                continue;
            }
            // The copied option has no place in this statement.
            options.push(OptionDef { key_span: None, value_span: None, ..option.clone() });
        }
        options.extend(own.options.iter().cloned());
        Ok(options)
    }
}
