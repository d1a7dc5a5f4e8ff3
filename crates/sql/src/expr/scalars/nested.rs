//! Nested values: a field of a ROW, an element of an ARRAY, a value of a MAP, the number of
//! elements, and arrays and rows made of values.
//!
//! An array's elements are counted from 1. A missing value is NULL: a field of a ROW that is NULL,
//! an element beyond an array's end, the value of a key that a map lacks.

use arrow::array::{Int32Array, ListArray, StructArray, UInt64Array};
use arrow::compute::{concat, interleave, nullif, take};
use arrow::{buffer::OffsetBuffer, datatypes::Fields};

use super::bounded::unbounded;
use super::doubles::common_type;
use super::maps::{entry_types, key_and_value, map, map_of, value_of_key};
use crate::expr::udf::{called, result_of, rows_of};
use crate::syntax::prelude::*;
use crate::syntax::subscripts::{FIELD, ITEM};
use crate::syntax::{calls::MAP, type_grammar::ELEMENT};

/// Functions that give a value for every row, field and item among them.
pub(crate) const SAFE: [&str; 3] = [FIELD, ITEM, "cardinality"];

/// All of them.
pub(super) fn functions() -> Vec<ScalarUDF> {
    use NestedKind::*;
    [FieldOf, Item, Cardinality, Element, Array, Map, Row].map(Nested::function).into()
}

/// `ARRAY[…]`.
pub(super) fn array_function() -> ScalarUDF {
    Nested::function(NestedKind::Array)
}

/// The call that takes a field of a row.
pub(crate) fn field_of(row: Expr, name: &str) -> Expr {
    let name = Expr::Literal(ScalarValue::from(name), None);
    Arc::new(Nested::function(NestedKind::FieldOf)).call(vec![row, name])
}

/// The call that makes a row of some fields.
pub(crate) fn row_of(fields: Vec<Expr>) -> Expr {
    Arc::new(Nested::function(NestedKind::Row)).call(fields)
}

/// The fields of a row that is made by such a call.
pub(crate) fn row_fields(expr: &Expr) -> Option<&[Expr]> {
    let Expr::ScalarFunction(call) = expr else { return None };
    let kind = unbounded(&call.func).inner().downcast_ref::<Nested>()?.kind;
    (kind == NestedKind::Row).then_some(&call.args[..])
}

/// Whether a function makes a row of its arguments.
pub(crate) fn makes_row(function: &ScalarUDF) -> bool {
    function.inner().downcast_ref::<Nested>().is_some_and(|own| own.kind == NestedKind::Row)
}

/// Written form of an access, with the value before it and the rest behind.
pub(crate) enum Access<'e> {
    Field(&'e Expr, &'e str),
    Item(&'e Expr, &'e Expr),
    /// An ARRAY[…] or a MAP[…] with its elements.
    Made(&'static str, &'e [Expr]),
}

/// The access in `expr`; `None` if `expr` is no access.
pub(crate) fn access(expr: &Expr) -> Option<Access<'_>> {
    let Expr::ScalarFunction(call) = expr else { return None };
    match (unbounded(&call.func).inner().downcast_ref::<Nested>()?.kind, &call.args[..]) {
        (NestedKind::FieldOf, [row, Expr::Literal(ScalarValue::Utf8(Some(name)), _)]) => {
            Some(Access::Field(row, name))
        }
        (NestedKind::Item, [of, key]) => Some(Access::Item(of, key)),
        (NestedKind::Array, elements) => Some(Access::Made("ARRAY", elements)),
        (NestedKind::Map, entries) => Some(Access::Made("MAP", entries)),
        _ => None,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum NestedKind {
    FieldOf,
    Item,
    Cardinality,
    Element,
    Array,
    Map,
    Row,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Nested {
    kind: NestedKind,
}

impl Nested {
    fn function(kind: NestedKind) -> ScalarUDF {
        ScalarUDF::from(Nested { kind })
    }
}

impl ScalarUDFImpl for Nested {
    fn name(&self) -> &str {
        match self.kind {
            NestedKind::FieldOf => FIELD,
            NestedKind::Item => ITEM,
            NestedKind::Cardinality => "cardinality",
            NestedKind::Element => "element",
            NestedKind::Array => "$array",
            NestedKind::Map => MAP,
            NestedKind::Row => "row",
        }
    }

    called!(@ CHECKED);

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        internal_err!("the type depends on the arguments")
    }

    /// Types that do not fit pass here;
    /// [`return_field_from_args`](ScalarUDFImpl::return_field_from_args) refuses them with its own
    /// words.
    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        Ok(match (self.kind, types) {
            (NestedKind::Item, [list @ DataType::List(_), key]) if key.is_integer() => {
                vec![list.clone(), DataType::Int64]
            }
            (NestedKind::Item, [map @ DataType::Map(entries, _), key]) => {
                match key_and_value(entries) {
                    Some((own, _)) if same_kind(own.data_type(), key) => {
                        vec![map.clone(), own.data_type().clone()]
                    }
                    _ => types.to_vec(),
                }
            }
            (NestedKind::Array, [_, ..]) => match common_type(types) {
                Some(common) => vec![plain(common); types.len()],
                None => types.to_vec(),
            },
            (NestedKind::Map, [_, _, ..]) => entry_types(types),
            _ => types.to_vec(),
        })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        let typed = match self.kind {
            NestedKind::FieldOf => field_type(&args),
            NestedKind::Item => item_type(args.arg_fields),
            NestedKind::Cardinality => cardinality_type(args.arg_fields),
            NestedKind::Element => element_type(args.arg_fields),
            NestedKind::Array => array_type(args.arg_fields),
            NestedKind::Map => map_of(args.arg_fields),
            NestedKind::Row => row_type(args.arg_fields),
        };
        let (data_type, nullable) = typed?;
        Ok(Arc::new(Field::new(self.name(), data_type, nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let rows = rows_of(&args);
        let evaluated = |(at, arg): (usize, &ColumnarValue)| match (self.kind, at) {
            (NestedKind::Item, 0) | (NestedKind::FieldOf, 1) => arg.to_array(rows.min(1)),
            _ => arg.to_array(rows),
        };
        let arrays = args.args.iter().enumerate().map(evaluated);
        let arrays: Vec<ArrayRef> = arrays.collect::<DfResult<_>>()?;
        let result = match (self.kind, &arrays[..]) {
            (NestedKind::FieldOf, [row, _]) => {
                field(row, args.return_field.data_type(), &args.args)?
            }
            (NestedKind::Item, [_, key]) => item_of(&args.args[0], key)?,
            (NestedKind::Cardinality, [of]) => cardinality(of)?,
            (NestedKind::Element, [of]) => element(of)?,
            (NestedKind::Array, elements) => array(elements, args.return_field.data_type(), rows)?,
            (NestedKind::Map, parts) => map(parts, args.return_field.data_type(), rows)?,
            (NestedKind::Row, values) => row(values, args.return_field.data_type())?,
            _ => return internal_err!("{} with {} arguments", self.name(), arrays.len()),
        };
        result_of(&args, result)
    }
}

/// A type that only DataFusion comes up with, as the engine knows it.
pub(super) fn plain(data_type: DataType) -> DataType {
    match data_type {
        DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
        other => other,
    }
}

/// Whether values of a type can be looked up among keys of another.
fn same_kind(key: &DataType, looked_up: &DataType) -> bool {
    let text =
        |t: &DataType| matches!(t, DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8);
    key == looked_up
        || *looked_up == DataType::Null
        || (key.is_integer() && looked_up.is_integer())
        || (text(key) && text(looked_up))
        || (key.is_floating() && looked_up.is_numeric())
}

/// A type, and whether it can be NULL.
pub(super) type TypeResult = Result<(DataType, bool)>;

fn field_type(args: &ReturnFieldArgs) -> TypeResult {
    let (Some(row), Some(Some(ScalarValue::Utf8(Some(name))))) =
        (args.arg_fields.first(), args.scalar_arguments.get(1))
    else {
        return Err(SqlError::internal("a field without its name"));
    };
    let DataType::Struct(fields) = row.data_type() else {
        let type_name = sql_type_name(row.data_type());
        let error = SqlError::types(format!("there is no '{name}' in a value of type {type_name}"));
        return Err(match row.data_type() {
            DataType::List(_) => error.help("take one of its elements first: array[1].field"),
            DataType::Map(..) => error.help(format!("write map['{name}'] for the value of a key")),
            _ => error.help("only a ROW has fields"),
        });
    };
    if let Some(field) = fields.iter().find(|field| field.name() == name) {
        return Ok((field.data_type().clone(), row.is_nullable() || field.is_nullable()));
    }
    Err(unknown_field(name, fields))
}

fn unknown_field(name: &str, fields: &Fields) -> SqlError {
    let names = || fields.iter().map(|field| field.name().as_str());
    let error = SqlError::name(format!("there is no field '{name}' in this ROW"));
    let other_case = names().find(|other| other.eq_ignore_ascii_case(name));
    match other_case.or_else(|| closest(name, names())) {
        Some(meant) => error.help(format!("did you mean '{meant}'?")),
        None => {
            let more = if fields.len() > 12 { ", …" } else { "" };
            let names: Vec<&str> = names().take(12).collect();
            error.help(format!("its fields are {}{more}", names.join(", ")))
        }
    }
}

fn item_type(fields: &[FieldRef]) -> TypeResult {
    let [of, key] = fields else { return Err(SqlError::internal("an item without its number")) };
    match of.data_type() {
        DataType::List(element) => match key.data_type() {
            DataType::Null => Ok((element.data_type().clone(), true)),
            number if number.is_integer() => Ok((element.data_type().clone(), true)),
            other => Err(SqlError::types(format!(
                "an element of an ARRAY is told by its number, not by {}",
                sql_type_name(other)
            ))
            .help("write for example array[1] for the first element")),
        },
        DataType::Map(entries, _) => match key_and_value(entries) {
            Some((own, value)) if same_kind(own.data_type(), key.data_type()) => {
                Ok((value.data_type().clone(), true))
            }
            Some((own, _)) => Err(SqlError::types(format!(
                "the keys of this MAP are {}, not {}",
                sql_type_name(own.data_type()),
                sql_type_name(key.data_type())
            ))
            .help("cast the key that is looked up")),
            None => Err(SqlError::internal("a map without keys")),
        },
        DataType::Struct(_) => {
            Err(SqlError::types("a field of a ROW is told by its name").help("write row.field"))
        }
        other => Err(SqlError::types(format!("{} has no elements", sql_type_name(other)))
            .help("only an ARRAY and a MAP have: array[1], map['key']")),
    }
}

fn cardinality_type(fields: &[FieldRef]) -> TypeResult {
    match fields {
        [of] if matches!(of.data_type(), DataType::List(_) | DataType::Map(..)) => {
            Ok((DataType::Int32, of.is_nullable()))
        }
        [of] => {
            let message = format!("CARDINALITY of {}", sql_type_name(of.data_type()));
            Err(SqlError::types(message + ": it takes an ARRAY or a MAP")
                .help("CHAR_LENGTH(x) is the length of a text"))
        }
        many => Err(SqlError::types(format!("CARDINALITY takes one argument, not {}", many.len()))
            .help("write CARDINALITY(array)")),
    }
}

fn element_type(fields: &[FieldRef]) -> TypeResult {
    match fields {
        [of] => match of.data_type() {
            DataType::List(element) => Ok((element.data_type().clone(), true)),
            other => {
                let message = format!("ELEMENT of {}: it takes an ARRAY", sql_type_name(other));
                Err(SqlError::types(message).help("write array[1] for the first of its elements"))
            }
        },
        many => Err(SqlError::types(format!("ELEMENT takes one argument, not {}", many.len()))
            .help("write ELEMENT(array)")),
    }
}

fn array_type(fields: &[FieldRef]) -> TypeResult {
    let Some(first) = fields.first() else {
        return Err(SqlError::internal("an ARRAY without elements"));
    };
    if let Some(other) = fields.iter().find(|f| f.data_type() != first.data_type()) {
        let (a, b) = (sql_type_name(first.data_type()), sql_type_name(other.data_type()));
        let message = format!("{a} and {b} cannot be elements of one ARRAY");
        return Err(SqlError::types(message).help("cast them to one type"));
    }
    // As a column of this type would be declared, so that both go into one UNION ALL.
    let element = Field::new(ELEMENT, first.data_type().clone(), true);
    Ok((DataType::List(Arc::new(element)), false))
}

fn row_type(fields: &[FieldRef]) -> TypeResult {
    if fields.is_empty() {
        return Err(SqlError::types("a ROW needs a field at least").help("write ROW(1, 'a')"));
    }
    let field = |(i, field): (usize, &FieldRef)| {
        Field::new(format!("EXPR${i}"), field.data_type().clone(), true)
    };
    Ok((DataType::Struct(fields.iter().enumerate().map(field).collect()), false))
}

fn field(row: &ArrayRef, data_type: &DataType, args: &[ColumnarValue]) -> DfResult<ArrayRef> {
    let (Some(row), [_, ColumnarValue::Scalar(ScalarValue::Utf8(Some(name)))]) =
        (row.as_struct_opt(), args)
    else {
        return internal_err!("a field of what is no row");
    };
    let Some(column) = row.column_by_name(name) else {
        return internal_err!("a row of another type, without {name}");
    };
    if *column.data_type() != *data_type {
        return internal_err!("a row whose {name} is {}", column.data_type());
    }
    match row.nulls().filter(|nulls| nulls.null_count() > 0) {
        // What a row holds that is NULL does not count.
        Some(nulls) if *data_type != DataType::Null => {
            Ok(nullif(column, &BooleanArray::new(!nulls.inner(), None))?)
        }
        _ => Ok(column.clone()),
    }
}

/// Elements that a constant is written out with at once, about.
const WRITTEN_OUT: usize = 1 << 16;

/// The items of a column, or of a constant, of which as many copies are made as there are rows.
fn item_of(of: &ColumnarValue, key: &ArrayRef) -> DfResult<ArrayRef> {
    let constant = match of {
        ColumnarValue::Array(of) => return item(of, key),
        ColumnarValue::Scalar(constant) => constant,
    };
    let elements = match constant {
        ScalarValue::List(list) => list.values().len(),
        ScalarValue::Map(map) => map.entries().len(),
        _ => 1,
    };
    let rows_max = (WRITTEN_OUT / elements.max(1)).max(1);
    let mut items = Vec::new();
    for start in (0..key.len()).step_by(rows_max) {
        let rows = rows_max.min(key.len() - start);
        items.push(item(&constant.to_array_of_size(rows)?, &key.slice(start, rows))?);
    }
    let parts: Vec<&dyn Array> = items.iter().map(AsRef::as_ref).collect();
    match parts[..] {
        [] => item(&constant.to_array_of_size(0)?, key),
        _ => Ok(concat(&parts)?),
    }
}

fn item(of: &ArrayRef, key: &ArrayRef) -> DfResult<ArrayRef> {
    if let Some(list) = of.as_list_opt::<i32>() {
        let numbers = cast(key, &DataType::Int64)?;
        let numbers = numbers.as_primitive::<Int64Type>();
        let offsets = list.value_offsets();
        let place = |row: usize| {
            if list.is_null(row) || numbers.is_null(row) {
                return None;
            }
            let (start, end) = (i64::from(offsets[row]), i64::from(offsets[row + 1]));
            let number = numbers.value(row);
            (1..=end - start).contains(&number).then(|| (start + number - 1) as u64)
        };
        let places: UInt64Array = (0..list.len()).map(place).collect();
        return Ok(take(list.values(), &places, None)?);
    }
    match of.as_map_opt() {
        Some(map) => value_of_key(map, key),
        None => internal_err!("an item of {}", of.data_type()),
    }
}

fn cardinality(of: &ArrayRef) -> DfResult<ArrayRef> {
    let offsets = match (of.as_list_opt::<i32>(), of.as_map_opt()) {
        (Some(list), _) => list.offsets(),
        (_, Some(map)) => map.offsets(),
        _ => return internal_err!("the cardinality of {}", of.data_type()),
    };
    let lengths = offsets.lengths().map(|length| length as i32).collect();
    Ok(Arc::new(Int32Array::new(lengths, of.nulls().cloned())))
}

fn element(of: &ArrayRef) -> DfResult<ArrayRef> {
    let Some(list) = of.as_list_opt::<i32>() else {
        return internal_err!("the element of {}", of.data_type());
    };
    let mut places = Vec::with_capacity(list.len());
    for (row, range) in list.value_offsets().windows(2).enumerate() {
        places.push(match range[1] - range[0] {
            _ if list.is_null(row) => None,
            0 => None,
            1 => Some(range[0] as u64),
            more => return exec_err!("ELEMENT of an ARRAY of {more} elements"),
        });
    }
    Ok(take(list.values(), &UInt64Array::from(places), None)?)
}

fn array(elements: &[ArrayRef], data_type: &DataType, rows: usize) -> DfResult<ArrayRef> {
    let DataType::List(element) = data_type else {
        return internal_err!("an array of type {data_type}");
    };
    let arrays: Vec<&dyn Array> = elements.iter().map(AsRef::as_ref).collect();
    let order: Vec<(usize, usize)> =
        (0..rows).flat_map(|row| (0..arrays.len()).map(move |of| (of, row))).collect();
    let values = interleave(&arrays, &order)?;
    let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(elements.len(), rows));
    Ok(Arc::new(ListArray::try_new(element.clone(), offsets, values, None)?))
}

fn row(values: &[ArrayRef], data_type: &DataType) -> DfResult<ArrayRef> {
    match data_type {
        DataType::Struct(fields) => {
            Ok(Arc::new(StructArray::try_new(fields.clone(), values.to_vec(), None)?))
        }
        other => internal_err!("a row of type {other}"),
    }
}
