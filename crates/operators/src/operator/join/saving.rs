//! Saving and restoring the rows of a join.
//!
//! Each side is a part. A saved row has the side's columns, its encoded key and its slice.
//! Versions of a temporal join are rows of the last slice that has fired, and become versions
//! again when this slice fires again ([`Operator::resume`](crate::operator::Operator::resume)).
//!
//! **Broadcast.** All leaders have all rows of the broadcast side, so the first leader alone saves
//! them, and all restore them. A row of the other side may be at any leader: each leader restores
//! its share of every batch.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, UInt32Array};
use arrow::compute::take_arrays;
use arrow::datatypes::{DataType, Field, FieldRef};
use millstream_state::Leaders;

use super::bags::AsideBags;
use super::gathered::Gathering;
use super::program::Meeting;
use super::sides::{JoinSide, SideColumns};
use super::{Join, JoinProgram};
use crate::columns::plain::{kept, kept_type, unkept};
use crate::error::{Error, Result};
use crate::operator::identity::{Identity, TypeName, column_text, key_text, window_text};
use crate::operator::saved::{
    Cut, Restoring, SLICE, SavePoint, SavedBatch, SavedPart, SetAside, Unchanged, schema_of,
    words_columns, words_fields,
};
use crate::passed::{Outgoing, PassedRows, Reader};
use crate::plan::JoinKind;
use crate::windowing::SliceId;

/// The column of encoded keys; there is none without keys.
const KEYS: &str = "$keys";
/// The column of a temporal join's times of the left side, and of places in the order of the right
/// side.
const HIDDEN: [&str; 2] = ["$time", "$order"];

/// Rows written into buffers at a time.
const GROUP_ROWS: usize = 1 << 12;

impl JoinProgram {
    /// The meaning of its state. The kind of join says which rows may have been left out.
    pub(super) fn state_identity(&self, type_name: TypeName<'_>) -> Identity {
        let kind = match self.kind {
            JoinKind::Inner => "an inner join",
            JoinKind::Left => "a left join",
            JoinKind::Right => "a right join",
            JoinKind::Full => "a full join",
            JoinKind::LeftSemi => "a semi-join",
            JoinKind::LeftAnti => "an anti-join",
        };
        let (mut keys, mut values, mut layout) = (vec![], vec![], vec![]);
        let both = ["left", "right"].into_iter().zip(&self.sides).enumerate();
        for (number, (name, side)) in both {
            let key = |key| format!("{name} {}", key_text(key, key.nullable, type_name));
            keys.extend(side.keys.iter().map(key));
            let fields = self.fields_of(number);
            values.extend(fields.map(|field| {
                let (is, of) = (field.is_nullable(), field.data_type());
                format!("{name} {}", column_text(field.name(), of, is, type_name))
            }));
            layout.push(format!("{name} {} words of keys", side.codec.words()));
        }
        let nulls = if self.nulls_are_equal { ", NULL equals NULL" } else { "" };
        let window = match self.as_of {
            true => "the last version by time".into(),
            false => window_text(self.window.as_ref()),
        };
        Identity {
            operator: format!("{kind}{nulls}"),
            keys,
            values,
            window,
            lateness_us: self.windowing.lateness_us(),
            layout,
        }
    }

    /// The columns of a side in a pair.
    pub(super) fn fields_of(&self, number: usize) -> impl Iterator<Item = &FieldRef> {
        let [left, right] = [0, 1].map(|side| self.sides[side].shown);
        let windows = self.pair.fields().len() - left - right;
        let (first, count) = if number == 0 { (windows, left) } else { (windows + left, right) };
        self.pair.fields().iter().skip(first).take(count)
    }

    /// The columns of a side's saved rows.
    pub(super) fn saved_part(&self, number: usize) -> SavedPart {
        let side = &self.sides[number];
        let field = |(field, column): (&FieldRef, &super::sides::Column)| -> FieldRef {
            Arc::new(Field::new(field.name(), kept_type(&column.data_type), field.is_nullable()))
        };
        let shown = self.fields_of(number).zip(&side.columns).map(field).collect();
        let mut hidden = Vec::new();
        for (at, column) in side.columns.iter().enumerate().skip(side.shown) {
            let data_type = kept_type(&column.data_type);
            hidden.push(match side.hidden == Some(at) {
                true => Field::new(HIDDEN[number], data_type, false),
                false => Field::new(format!("$key {}", at - side.shown + 1), data_type, true),
            });
        }
        hidden.push(Field::new(SLICE, DataType::Int64, false));
        hidden.extend(words_fields(KEYS, side.codec.words()));
        SavedPart { name: ["left", "right"][number].into(), schema: schema_of(shown, hidden) }
    }

    /// A batch of a side's rows, each with its slice.
    fn saved_batch(
        &self,
        number: usize,
        slices: Vec<i64>,
        rows: SideColumns,
    ) -> Result<Option<SavedBatch>> {
        if rows.rows == 0 {
            return Ok(None);
        }
        let mut columns = rows.columns.into_iter().map(kept).collect::<Result<Vec<_>>>()?;
        columns.push(Arc::new(Int64Array::from(slices)));
        columns.extend(words_columns(&rows.keys, self.sides[number].codec.words()));
        let rows = RecordBatch::try_new(self.saved_part(number).schema, columns)?;
        Ok(Some(SavedBatch { part: number, rows }))
    }
}

/// Rows of a join that have been set aside.
struct AsideJoin {
    program: Arc<JoinProgram>,
    /// Versions, and which of them are live, of the last slice that has fired.
    versions: Vec<(SideColumns, Vec<bool>)>,
    last: Option<SliceId>,
    aside: AsideBags,
}

impl SetAside for AsideJoin {
    fn save(&mut self, at: &mut SavePoint) -> Result<Option<SavedBatch>> {
        loop {
            let saved = match at.step {
                0 => self.save_versions(at)?,
                side @ (1 | 2) => self.save_bags(side - 1, at)?,
                _ => return Ok(None),
            };
            match saved {
                None => at.next_step(),
                saved => return Ok(saved),
            }
        }
    }

    fn copied_bytes(&self) -> usize {
        self.aside.copied_bytes
    }

    fn unchanged(&self) -> Unchanged {
        self.aside.unchanged.clone()
    }
}

impl AsideJoin {
    /// The next live versions.
    fn save_versions(&self, at: &mut SavePoint) -> Result<Option<SavedBatch>> {
        let Some(slice) = self.last else { return Ok(None) };
        while let Some((columns, live)) = self.versions.get(at.block) {
            let (mut picked, mut bytes) = (Vec::new(), 0);
            let row_bytes = columns.bytes() / columns.rows.max(1);
            while at.row < live.len() && !at.is_full(picked.len(), bytes) {
                if live[at.row] {
                    picked.push(at.row as u32);
                    bytes += row_bytes;
                }
                at.row += 1;
            }
            if at.row == live.len() {
                (at.block, at.row) = (at.block + 1, 0);
            }
            if picked.is_empty() {
                continue;
            }
            let width = self.program.sides[1].codec.words();
            let key = |row: &u32| &columns.keys[*row as usize * width..][..width];
            let rows = SideColumns {
                rows: picked.len(),
                keys: picked.iter().flat_map(key).copied().collect(),
                columns: take_arrays(&columns.columns, &UInt32Array::from(picked), None)?,
                ..SideColumns::default()
            };
            let slices = vec![slice.word() as i64; rows.rows];
            return self.program.saved_batch(1, slices, rows);
        }
        Ok(None)
    }

    /// The next rows of a side's bags.
    fn save_bags(&mut self, number: usize, at: &mut SavePoint) -> Result<Option<SavedBatch>> {
        let AsideJoin { program, aside, .. } = self;
        let (side, bags) = (&program.sides[number], &mut aside.bags[number]);
        let mut reader = Reader::new(program.sides[0].format.clone());
        let (mut gathering, mut slices, mut bytes) = (Gathering::new(side, 0), Vec::new(), 0);
        while let Some((slice, bag)) = bags.front()
            && !at.is_full(slices.len(), bytes)
        {
            match bag.buffers().get(at.block) {
                Some(rows) => {
                    gathering.read(side, &mut reader, rows)?;
                    slices.resize(slices.len() + rows.rows(), slice.word() as i64);
                    bytes += PassedRows::bytes(rows);
                    at.block += 1;
                }
                None => {
                    at.block = 0;
                    bags.pop_front();
                }
            }
        }
        program.saved_batch(number, slices, gathering.finish(side)?)
    }
}

impl Join {
    /// See [`Operator::set_aside`](crate::operator::Operator::set_aside).
    pub(super) fn set_rows_aside(
        &mut self,
        cut: Cut,
        copied_bytes_max: usize,
    ) -> Result<Box<dyn SetAside>> {
        let Join { program, bags, versions, last, leadership, firing, .. } = self;
        if firing.is_some() || bags.await_thaw(None) {
            return Err(Error::Internal("state is set aside while it fires, or again".into()));
        }
        // The first leader saves rows of which each leader has a copy.
        let saves = |side| program.meeting != Meeting::Broadcast(side) || leadership.me == 0;
        let aside = bags.set_aside(&saves, cut, copied_bytes_max);
        let (program, last, versions) = (program.clone(), *last, versions.copy());
        // Versions have the name of a slice that has fired, and has no bags any more.
        let is_left_out = |slice| aside.unchanged.slices.contains(&(1, slice));
        debug_assert!(!last.is_some_and(is_left_out), "a slice both saved and left out");
        Ok(Box::new(AsideJoin { program, versions, last, aside }))
    }

    /// See [`Operator::restore`](crate::operator::Operator::restore).
    pub(super) fn restore_rows(
        &mut self,
        number: usize,
        rows: &RecordBatch,
        counting: Option<&[i64]>,
    ) -> Result<()> {
        let Join { program, bags, leadership, .. } = self;
        let Some(side) = program.sides.get(number) else {
            return Err(Error::Internal(format!("part {number} of a join, which has two")));
        };
        let saved = program.saved_part(number);
        let restoring = Restoring { name: &program.name, part: &saved };
        let mut columns = Vec::new();
        for (column, field) in side.columns.iter().zip(saved.schema.fields()) {
            let kept = restoring.column(rows, field.name())?;
            let column = unkept(kept, &column.data_type);
            columns.push(column.map_err(|error| restoring.damaged(error))?);
        }
        let keys = restoring.words(rows, KEYS, side.codec.words())?;
        if !fit(side, &keys, &columns) {
            return Err(restoring.damaged("a text of a key has another length than the key says"));
        }
        let mut hashes = Vec::new();
        side.codec.hash(&keys, rows.num_rows(), &mut hashes);
        let (leaders, me) = (Leaders::even(leadership.leaders), leadership.me);
        let is_own = |slice: SliceId, row: &u32| match program.meeting {
            Meeting::Keys => leaders.of(hashes[*row as usize]) == me,
            Meeting::Slices(windowing) => windowing.leader_of(slice, leaders.count()) == me,
            Meeting::Broadcast(side) => side == number || *row as usize % leaders.count() == me,
        };
        let arguments = side.inputs(&columns)?;
        let vars = side.format.vars_behind(side.texts_in(&columns), &arguments);
        let places: Vec<u32> = (0..rows.num_rows() as u32).collect();
        for (slice, range) in restoring.slices(rows, counting)? {
            if !program.windowing.has_slice(slice) {
                return Err(restoring.damaged(format_args!("there is no slice {slice}")));
            }
            let own: Vec<u32> =
                places[range].iter().copied().filter(|row| is_own(slice, row)).collect();
            for picked in own.chunks(GROUP_ROWS) {
                let rows = Outgoing {
                    slice,
                    picked,
                    words: &keys,
                    rows: &places,
                    vars: &vars,
                    arguments: &arguments,
                };
                bags.keep(number, &rows)?;
            }
        }
        Ok(())
    }
}

/// Whether keys say of their texts how long these are: then they can be written as passed rows.
fn fit(side: &JoinSide, keys: &[u64], columns: &[ArrayRef]) -> bool {
    let width = side.codec.words();
    let texts = side.texts_in(columns);
    side.codec.var_words().into_iter().zip(&texts).all(|(word, text)| {
        let fits = |(row, key): (usize, &[u64])| key[word] == (text.bytes(row).len() as u64) << 32;
        keys.chunks_exact(width).enumerate().all(fits)
    })
}
