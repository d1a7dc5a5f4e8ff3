//! Saving and restoring the rows of an aggregate.
//!
//! They come in this order: open sessions; slices that have fired and that later windows need;
//! slices that have not fired. All have one form, that of a slice's rows: an open session is a row
//! of the last slice that has fired, and becomes a session again when this slice fires again
//! ([`Operator::resume`](crate::operator::Operator::resume)).

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Field, FieldRef};
use millstream_state::{RowsRef, ValueKind};

use super::{Aggregate, AggregateProgram};
use crate::columns::plain::{shown, shown_type};
use crate::error::{Error, Result};
use crate::operator::Program;
use crate::operator::aside::AsideTables;
use crate::operator::identity::{Identity, TypeName, key_text, window_text};
use crate::operator::saved::{
    Cut, Restoring, SavePoint, SavedBatch, SavedPart, SetAside, StateRows, Unchanged, state_schema,
};
use crate::windowing::{Combining, SliceId, time_before};

/// Name of the column that has all rows of a group, where a group has several.
const ROWS_OF_GROUP: &str = "rows";

impl AggregateProgram {
    /// The meaning of its state.
    pub(super) fn state_identity(&self, type_name: TypeName<'_>) -> Identity {
        let AggregateProgram { grouping, finisher, window, .. } = self;
        let operator = match finisher.pairing() {
            Some(_) => "a join within sessions",
            None => "an aggregate",
        };
        let kept = |(kind, optional): &(ValueKind, bool)| {
            format!("{kind:?}{}", if *optional { " or nothing" } else { "" })
        };
        Identity {
            operator: operator.into(),
            keys: grouping.keys.iter().map(|key| key_text(key, key.nullable, type_name)).collect(),
            values: grouping.aggregates.texts_of_calls(type_name),
            window: window_text(window.as_ref()),
            lateness_us: grouping.windowing.lateness_us(),
            layout: grouping.aggregates.layout_values().iter().map(kept).collect(),
        }
    }

    /// The only part: rows of state. For readers they have the columns of a fired window: bounds,
    /// keys, and the results of the records so far. Where windows overlap, bounds are those of
    /// panes.
    pub(super) fn saved_part(&self) -> SavedPart {
        let fired = self.finisher.fired.fields();
        let before = self.bounds() + self.grouping.keys.len();
        let shown = |field: &FieldRef| -> FieldRef {
            Arc::new(Field::new(field.name(), shown_type(field.data_type()), true))
        };
        let mut fields: Vec<FieldRef> = fired.iter().map(shown).collect();
        if self.grouping.aggregates.gives_several() {
            let row = DataType::Struct(fields.split_off(before.min(fields.len())).into());
            let list = DataType::List(Arc::new(Field::new_list_field(row, false)));
            fields.push(Arc::new(Field::new(ROWS_OF_GROUP, list, true)));
        }
        let schema = state_schema(fields, &self.grouping.layout);
        SavedPart { name: "rows".into(), schema }
    }

    /// How many columns have the bounds of windows.
    fn bounds(&self) -> usize {
        if self.grouping.windowing.is_whole() { 0 } else { 3 }
    }

    /// The columns for readers.
    fn columns_of(
        &self,
        slices: &[i64],
        rows: &RowsRef<'_>,
        part: &SavedPart,
    ) -> Result<Vec<ArrayRef>> {
        let grouping = &self.grouping;
        let mut columns = self.bounds_of(slices, rows);
        columns.extend(grouping.codec.decode(rows, grouping.own_keys())?);
        match part.schema.fields().get(columns.len()).map(|field| field.data_type()) {
            Some(DataType::List(row)) if grouping.aggregates.gives_several() => {
                columns.push(grouping.aggregates.rows_so_far(rows, row)?);
            }
            _ => columns.extend(grouping.aggregates.so_far(rows)?),
        }
        columns.into_iter().map(shown).collect()
    }

    fn bounds_of(&self, slices: &[i64], rows: &RowsRef<'_>) -> Vec<ArrayRef> {
        let grouping = &self.grouping;
        let windowing = &grouping.windowing;
        if windowing.is_whole() {
            return vec![];
        }
        let bounds: Vec<[i64; 2]> = match (windowing.combining(), grouping.session_times) {
            (Combining::Sessions { gap_us }, Some(times)) => {
                let [first, last] = times.map(|value| grouping.layout.values()[value].word);
                let times = rows.words(first).zip(rows.words(last));
                let bounds = |(first, last)| [first as i64, (last as i64).saturating_add(gap_us)];
                times.map(bounds).collect()
            }
            _ => {
                let slices = slices.iter().enumerate();
                let begin = |(row, slice): (usize, &i64)| match grouping.window_word {
                    Some(word) => rows.word(row, word) as i64,
                    None => windowing.begin_of(SliceId::from_word(*slice as u64)),
                };
                let begins = slices.map(begin);
                begins.map(|begin| windowing.slice_of(begin)).map(|of| [of.start, of.end]).collect()
            }
        };
        let column = |us: &dyn Fn(&[i64; 2]) -> i64| -> ArrayRef {
            let ms = bounds.iter().map(|bounds| us(bounds).div_euclid(1000));
            Arc::new(TimestampMillisecondArray::from_iter_values(ms))
        };
        vec![column(&|of| of[0]), column(&|of| of[1]), column(&|of| time_before(of[1]))]
    }
}

/// Rows of an aggregate that have been set aside.
struct AsideAggregate {
    program: Arc<AggregateProgram>,
    tables: AsideTables,
}

impl SetAside for AsideAggregate {
    fn save(&mut self, at: &mut SavePoint) -> Result<Option<SavedBatch>> {
        let AsideAggregate { program, tables } = self;
        let mut rows = StateRows::default();
        tables.fill(at, &mut rows);
        if rows.slices().is_empty() {
            return Ok(None);
        }
        let part = program.saved_part();
        let layout = &program.grouping.layout;
        let columns = program.columns_of(rows.slices(), &rows.rows(layout), &part)?;
        let rows = rows.finish(&part, columns)?;
        Ok(rows.map(|rows| SavedBatch { part: 0, rows }))
    }

    fn copied_bytes(&self) -> usize {
        self.tables.copied_bytes()
    }

    fn shared_bytes(&self) -> usize {
        self.tables.shared_bytes()
    }

    fn copy_shared(&mut self) {
        self.tables.copy_shared();
    }

    fn unchanged(&self) -> Unchanged {
        self.tables.unchanged()
    }
}

impl Aggregate {
    /// See [`Operator::set_aside`](crate::operator::Operator::set_aside).
    pub(super) fn set_rows_aside(
        &mut self,
        cut: Cut,
        copied_bytes_max: usize,
    ) -> Result<Box<dyn SetAside>> {
        if self.combined.firing().is_some() || self.slices.awaits_thaw(None) {
            return Err(Error::Internal("state is set aside while it fires, or again".into()));
        }
        let program = self.program.clone();
        let mut tables = AsideTables::new(cut);
        self.combined.set_aside(&program.grouping, &mut tables);
        self.slices.set_aside(copied_bytes_max, &mut tables);
        // Open sessions have the name of a slice that has fired, and is not here any more.
        debug_assert!(tables.are_disjoint(), "a slice both saved and left out");
        Ok(Box::new(AsideAggregate { program, tables }))
    }

    /// See [`Operator::restore`](crate::operator::Operator::restore).
    pub(super) fn restore_rows(
        &mut self,
        part: usize,
        rows: &RecordBatch,
        counting: Option<&[i64]>,
    ) -> Result<()> {
        let (grouping, name) = (&self.program.grouping, self.program.name());
        let saved = self.program.saved_part();
        let restoring = Restoring { name: &name, part: &saved };
        if part != 0 {
            return Err(Error::Internal(format!("part {part} of an aggregate, which has one")));
        }
        let (words, arena) = restoring.state_rows(rows, &grouping.layout)?;
        let row_words = grouping.layout.row_words();
        for (slice, range) in restoring.slices(rows, counting)? {
            let words = &words[range.start * row_words..range.end * row_words];
            if !grouping.windowing.has_slice(slice) {
                return Err(restoring.damaged(format_args!("there is no slice {slice}")));
            }
            let rows = || words.chunks_exact(row_words);
            if let Some(word) = grouping.window_word
                && !rows().all(|row| grouping.windowing.has_part(slice, row[word] as i64))
            {
                return Err(restoring.damaged(format_args!("rows of no part of slice {slice}")));
            }
            if let Some(times) = grouping.session_times {
                let words = times.map(|value| grouping.layout.values()[value].word);
                let mut times = rows().map(|row| words.map(|word| row[word] as i64));
                if !times.all(|times| grouping.windowing.has_session(slice, times)) {
                    return Err(restoring.damaged("sessions at impossible times"));
                }
            }
            let restored = self.slices.restore(slice, words, &arena);
            restored.map_err(|malformed| restoring.damaged(malformed.what))?;
        }
        Ok(())
    }
}
