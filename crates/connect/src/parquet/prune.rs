//! Pruning of rows that cannot pass a query's filter, by statistics.
//!
//! A row group has the least and the greatest value of each column; with a page index, so has each
//! page. If the condition holds for no value between them, the rows are *left out*: only columns
//! that are needed of every row are read ([`Pruning`]).
//!
//! Without effect: statistics of floating-point numbers, since NaN is not covered; statistics of
//! instants in 96 bits and of the format's first versions, because of their order. Comparisons by
//! `<>` exclude nearly nothing, and are left out.

use std::iter;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, Scalar};
use arrow::compute::kernels::cmp::{gt, gt_eq, lt, lt_eq};
use arrow::compute::or;
use arrow::datatypes::{DataType, FieldRef};
use arrow::error::ArrowError;
use bytes::Bytes;
use millstream_contract::compare::Comparison;
use millstream_contract::pruning::{AnyOf, Condition, Pruning};
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::basic::Type as Physical;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader,
    RowGroupMetaData,
};
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type};

use super::file::ParquetFile;
use super::thrift;
use crate::columns::Columns;
use crate::conform::conform;
use crate::guard::guarded;

/// Bytes of a page index of one column in one row group at most: others are not looked at.
const INDEX_BYTES_MAX: usize = 16 << 20;

/// The conditions of each row group, of which one of some comparisons has to hold.
#[derive(Debug, Default)]
pub(super) struct Pruner(Vec<Vec<StatCondition>>);

/// A condition over a column that has statistics.
#[derive(Debug)]
struct StatCondition {
    comparison: Comparison,
    /// One value, of the type that the table declares.
    constant: ArrayRef,
    /// The column in the file.
    leaf: usize,
    field: FieldRef,
    /// A file of this column alone.
    alone: SchemaDescPtr,
}

impl Pruner {
    pub(super) fn new(pruning: &Pruning, columns: &Columns, file: &ParquetFile) -> Pruner {
        let asked = |condition: &Condition| StatCondition::new(condition, columns, file);
        let any = |AnyOf(any): &AnyOf| any.iter().map(asked).collect();
        Pruner(pruning.conditions.iter().filter_map(any).collect())
    }

    /// The rows of a row group that are left out, in ascending ranges that do not touch.
    pub(super) fn left_out(&self, file: &ParquetFile, group: usize) -> Vec<Range<u64>> {
        // Unreadable statistics leave no rows out.
        let of_one = |asked: &StatCondition| {
            joined(guarded(|| asked.left_out(file, group)).unwrap_or_default())
        };
        let of_any =
            |any: &Vec<StatCondition>| any.iter().map(of_one).reduce(|a, b| common(&a, &b));
        joined(self.0.iter().filter_map(of_any).flatten().collect())
    }
}

/// Ranges in ascending order, with gaps between.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

/// The parts that ascending ranges have in common.
fn common(a: &[Range<u64>], b: &[Range<u64>]) -> Vec<Range<u64>> {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let mut common = Vec::new();
    while let (Some(first), Some(second)) = (a.peek(), b.peek()) {
        let both = first.start.max(second.start)..first.end.min(second.end);
        if first.end <= second.end {
            a.next()
        } else {
            b.next()
        };
        if !both.is_empty() {
            common.push(both);
        }
    }
    common
}

impl StatCondition {
    fn new(condition: &Condition, columns: &Columns, file: &ParquetFile) -> Option<StatCondition> {
        let (root, declared) = columns.source_of(condition.column)?;
        let constant = condition.constant.clone();
        let same = constant.len() == 1 && constant.data_type() == declared;
        if !same || !is_ordered(declared) || condition.comparison == Comparison::NotEqual {
            return None;
        }
        let schema = file.metadata.file_metadata().schema_descr();
        let root_type = schema.root_schema().get_fields().get(root)?.clone();
        let leaf = *file.leaves(&[root]).first().filter(|_| root_type.is_primitive())?;
        if schema.column(leaf).physical_type() == Physical::INT96 {
            return None;
        }
        let group = Type::group_type_builder("alone").with_fields(vec![root_type]).build().ok()?;
        Some(StatCondition {
            comparison: condition.comparison,
            constant,
            leaf,
            field: file.fields.get(root)?.clone(),
            alone: Arc::new(SchemaDescriptor::new(Arc::new(group))),
        })
    }

    /// The rows of a row group on which it does not hold, as far as statistics say.
    fn left_out(&self, file: &ParquetFile, group: usize) -> Result<Vec<Range<u64>>> {
        let metadata = file.metadata.row_group(group);
        let column = metadata.column(self.leaf);
        let rows = u64::try_from(metadata.num_rows()).unwrap_or(0);
        if column.statistics().is_some_and(|known| known.is_min_max_deprecated()) {
            return Ok(Vec::new());
        }
        let schema = file.metadata.file_metadata().schema_descr();
        let known = StatisticsConverter::from_column_index(self.leaf, &self.field, schema)?;
        let (mins, maxes) = (known.row_group_mins([metadata])?, known.row_group_maxes([metadata])?);
        let holds_nowhere = self.holds_nowhere(&mins, &maxes)?;
        if holds_nowhere.len() == 1 && is_true(&holds_nowhere, 0) {
            return Ok(iter::once(0..rows).collect());
        }
        self.left_out_pages(file, column, rows)
    }

    /// The same by pages, if there is an index of them.
    fn left_out_pages(
        &self,
        file: &ParquetFile,
        column: &ColumnChunkMetaData,
        rows: u64,
    ) -> Result<Vec<Range<u64>>> {
        let Some(metadata) = self.page_index(file, column, rows)? else { return Ok(Vec::new()) };
        let (Some(values), Some(places)) = (metadata.column_index(), metadata.offset_index())
        else {
            return Ok(Vec::new());
        };
        let known = StatisticsConverter::from_column_index(0, &self.field, &self.alone)?;
        let mins = known.data_page_mins(values, places, &[0])?;
        let maxes = known.data_page_maxes(values, places, &[0])?;
        let holds_nowhere = self.holds_nowhere(&mins, &maxes)?;
        let pages = places.first().and_then(|columns| columns.first());
        let starts = pages.into_iter().flat_map(|pages| pages.page_locations());
        let mut starts: Vec<u64> =
            starts.map(|page| u64::try_from(page.first_row_index).unwrap_or(u64::MAX)).collect();
        starts.push(rows);
        let ascending = starts.first() == Some(&0) && starts.is_sorted();
        if !ascending || starts.len() != holds_nowhere.len() + 1 {
            return Ok(Vec::new());
        }
        let pages =
            starts.windows(2).enumerate().filter(|(page, _)| is_true(&holds_nowhere, *page));
        Ok(pages.map(|(_, ends)| ends[0]..ends[1]).collect())
    }

    /// The page index of the column in one row group, as metadata of a file of the two alone.
    fn page_index(
        &self,
        file: &ParquetFile,
        column: &ColumnChunkMetaData,
        rows: u64,
    ) -> Result<Option<ParquetMetaData>> {
        let read = |offset: Option<i64>, length: Option<i32>| -> Option<Bytes> {
            let length = usize::try_from(length?).ok().filter(|l| *l <= INDEX_BYTES_MAX)?;
            let bytes = file.bytes.read(u64::try_from(offset?).ok()?, length).ok()?;
            thrift::is_whole(&bytes).then_some(bytes)
        };
        let values = read(column.column_index_offset(), column.column_index_length());
        let places = read(column.offset_index_offset(), column.offset_index_length());
        let (Some(values), Some(places)) = (values, places) else { return Ok(None) };
        let column = column
            .clone()
            .into_builder()
            .set_column_index_offset(Some(0))
            .set_column_index_length(Some(values.len() as i32))
            .set_offset_index_offset(Some(values.len() as i64))
            .set_offset_index_length(Some(places.len() as i32))
            .build()?;
        let rows = rows as i64;
        let group = RowGroupMetaData::builder(self.alone.clone())
            .set_num_rows(rows)
            .set_column_metadata(vec![column])
            .build()?;
        let about = FileMetaData::new(1, rows, None, None, self.alone.clone(), None);
        // The end of the range has to lie within the bytes.
        let bytes = Bytes::from([&values[..], &places[..], &[0]].concat());
        let metadata = ParquetMetaData::new(about, vec![group]);
        let mut reader = ParquetMetaDataReader::new_with_metadata(metadata)
            .with_page_index_policy(PageIndexPolicy::Optional);
        reader.read_page_indexes(&bytes)?;
        reader.finish().map(Some)
    }

    /// Where all values lie between these, whether it holds on none of them; NULL if not known.
    fn holds_nowhere(&self, mins: &ArrayRef, maxes: &ArrayRef) -> Result<BooleanArray> {
        let compared = || {
            let declared = self.constant.data_type();
            let (mins, maxes) = (conform(mins, declared)?, conform(maxes, declared)?);
            let constant = Scalar::new(self.constant.clone());
            match self.comparison {
                Comparison::Equal => or(&gt(&mins, &constant)?, &lt(&maxes, &constant)?),
                Comparison::Less => gt_eq(&mins, &constant),
                Comparison::LessOrEqual => gt(&mins, &constant),
                Comparison::Greater => lt_eq(&maxes, &constant),
                Comparison::GreaterOrEqual => lt(&maxes, &constant),
                Comparison::NotEqual => Ok(BooleanArray::from(vec![None::<bool>; mins.len()])),
            }
        };
        compared().map_err(|error: ArrowError| ParquetError::ArrowError(error.to_string()))
    }
}

fn is_true(values: &BooleanArray, at: usize) -> bool {
    values.is_valid(at) && values.value(at)
}

/// Whether statistics are in the order in which values of this type are compared.
fn is_ordered(data_type: &DataType) -> bool {
    use DataType::*;
    data_type.is_integer()
        || matches!(
            data_type,
            Date32 | Time32(_) | Time64(_) | Timestamp(..) | Decimal128(..) | Utf8 | Binary
        )
}
