//! SQL types and the Arrow types that stand for them.

use std::sync::Arc;

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Field, FieldRef, TimeUnit};
use datafusion_common::Result as DfResult;
use datafusion_expr::planner::TypePlanner;
use datafusion_sql::sqlparser::ast::{DataType as SqlType, ExactNumberInfo, TimezoneInfo};
pub use millstream_contract::nested::sql_name as sql_type_name;
use millstream_contract::settings::closest;

use crate::syntax::error::{Result, SqlError};

/// The time zone of TIMESTAMP_LTZ as Arrow has it: values are instants.
pub(crate) const UTC: &str = "UTC";

/// Timestamps are declared without a precision: microseconds, so that the year 9999 fits.
const DEFAULT_PRECISION: u64 = 6;

/// Arrow type of values of a column or a CAST of this SQL type.
pub(crate) fn arrow_type(sql: &SqlType) -> Result<DataType> {
    use DataType::*;
    Ok(match sql {
        SqlType::Boolean | SqlType::Bool => Boolean,
        SqlType::TinyInt(_) => Int8,
        SqlType::SmallInt(_) | SqlType::Int2(_) => Int16,
        SqlType::Int(_) | SqlType::Integer(_) | SqlType::Int4(_) => Int32,
        SqlType::BigInt(_) | SqlType::Int8(_) => Int64,
        SqlType::TinyIntUnsigned(_) => UInt8,
        SqlType::SmallIntUnsigned(_) | SqlType::Int2Unsigned(_) => UInt16,
        SqlType::IntUnsigned(_) | SqlType::IntegerUnsigned(_) | SqlType::Int4Unsigned(_) => UInt32,
        SqlType::BigIntUnsigned(_) | SqlType::Int8Unsigned(_) => UInt64,
        SqlType::Float(ExactNumberInfo::None) | SqlType::Real | SqlType::Float4 => Float32,
        SqlType::Double(ExactNumberInfo::None) | SqlType::DoublePrecision | SqlType::Float8 => {
            Float64
        }
        SqlType::Decimal(info) | SqlType::Numeric(info) | SqlType::Dec(info) => decimal(info)?,
        SqlType::Char(_)
        | SqlType::Character(_)
        | SqlType::Varchar(_)
        | SqlType::CharVarying(_)
        | SqlType::CharacterVarying(_)
        | SqlType::String(_)
        | SqlType::Text => Utf8,
        SqlType::Binary(_) | SqlType::Varbinary(_) | SqlType::Bytes(_) => Binary,
        SqlType::Date => Date32,
        SqlType::Time(precision, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            match precision.unwrap_or(0) {
                0 => Time32(TimeUnit::Second),
                1..=3 => Time32(TimeUnit::Millisecond),
                4..=6 => Time64(TimeUnit::Microsecond),
                7..=9 => Time64(TimeUnit::Nanosecond),
                p => return Err(precision_error("TIME", p)),
            }
        }
        SqlType::Timestamp(precision, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            Timestamp(timestamp_unit(*precision)?, None)
        }
        SqlType::Custom(name, modifiers) if is_ltz(&name.to_string()) => {
            let precision = match &modifiers[..] {
                [] => None,
                [p] => Some(p.parse().map_err(|_| unknown(sql))?),
                _ => return Err(unknown(sql)),
            };
            Timestamp(timestamp_unit(precision)?, Some(UTC.into()))
        }
        _ => return Err(unknown(sql)),
    })
}

fn is_ltz(name: &str) -> bool {
    name.eq_ignore_ascii_case("TIMESTAMP_LTZ")
}

fn unknown(sql: &SqlType) -> SqlError {
    let error = SqlError::types(format!("there is no type {sql} here"));
    if let Some(meant) = closest_type(&sql.to_string()) {
        return error.help(format!("did you mean {meant}?"));
    }
    error.help(
        "the types are BOOLEAN, TINYINT, SMALLINT, INT, BIGINT (each also UNSIGNED), FLOAT, \
         DOUBLE, DECIMAL(p, s), STRING, VARCHAR(n), BYTES, DATE, TIME(p), \
         TIMESTAMP(p), TIMESTAMP_LTZ(p), and of columns also ROW<name TYPE, …>, ARRAY<TYPE> \
         and MAP<TYPE, TYPE>",
    )
}

fn precision_error(name: &str, precision: u64) -> SqlError {
    SqlError::types(format!("{name}({precision}) has too many digits"))
        .help(format!("write {name}(0) to {name}(9)"))
}

fn timestamp_unit(precision: Option<u64>) -> Result<TimeUnit> {
    Ok(match precision.unwrap_or(DEFAULT_PRECISION) {
        0 => TimeUnit::Second,
        1..=3 => TimeUnit::Millisecond,
        4..=6 => TimeUnit::Microsecond,
        7..=9 => TimeUnit::Nanosecond,
        p => return Err(precision_error("TIMESTAMP", p)),
    })
}

fn decimal(info: &ExactNumberInfo) -> Result<DataType> {
    let (precision, scale) = match info {
        ExactNumberInfo::None => (10, 0),
        ExactNumberInfo::Precision(p) => (*p, 0),
        ExactNumberInfo::PrecisionAndScale(p, s) => (*p, *s),
    };
    let max = u64::from(DECIMAL128_MAX_PRECISION);
    if precision == 0 || precision > max || scale < 0 || scale > precision as i64 {
        return Err(SqlError::types(format!("there is no DECIMAL({precision}, {scale})"))
            .help("write DECIMAL(p, s) with 1 <= p <= 38 and 0 <= s <= p"));
    }
    Ok(DataType::Decimal128(precision as u8, scale as i8))
}

/// Replaces Arrow's type names in a message of DataFusion by SQL's.
pub(crate) fn with_sql_types(message: &str) -> String {
    const NAMES: &[(&str, &str)] = &[
        ("Utf8View", "STRING"),
        ("LargeUtf8", "STRING"),
        ("Utf8", "STRING"),
        ("UInt64", "BIGINT UNSIGNED"),
        ("UInt32", "INT UNSIGNED"),
        ("UInt16", "SMALLINT UNSIGNED"),
        ("UInt8", "TINYINT UNSIGNED"),
        ("Int64", "BIGINT"),
        ("Int32", "INT"),
        ("Int16", "SMALLINT"),
        ("Int8", "TINYINT"),
        ("Float64", "DOUBLE"),
        ("Float32", "FLOAT"),
        ("Decimal128", "DECIMAL"),
        ("Date32", "DATE"),
        ("Interval(MonthDayNano)", "INTERVAL"),
        ("Duration(ns)", "INTERVAL"),
        ("Duration(µs)", "INTERVAL"),
        ("Duration(ms)", "INTERVAL"),
        ("Duration(s)", "INTERVAL"),
        ("Timestamp(Second, None)", "TIMESTAMP(0)"),
        ("Timestamp(Second, Some(\"UTC\"))", "TIMESTAMP_LTZ(0)"),
        ("Time32(Second)", "TIME(0)"),
        ("Duration(Second)", "INTERVAL"),
        ("Timestamp(Millisecond, None)", "TIMESTAMP(3)"),
        ("Timestamp(Millisecond, Some(\"UTC\"))", "TIMESTAMP_LTZ(3)"),
        ("Time32(Millisecond)", "TIME(3)"),
        ("Duration(Millisecond)", "INTERVAL"),
        ("Timestamp(Microsecond, None)", "TIMESTAMP(6)"),
        ("Timestamp(Microsecond, Some(\"UTC\"))", "TIMESTAMP_LTZ(6)"),
        ("Time64(Microsecond)", "TIME(6)"),
        ("Duration(Microsecond)", "INTERVAL"),
        ("Timestamp(Nanosecond, None)", "TIMESTAMP(9)"),
        ("Timestamp(Nanosecond, Some(\"UTC\"))", "TIMESTAMP_LTZ(9)"),
        ("Time64(Nanosecond)", "TIME(9)"),
        ("Duration(Nanosecond)", "INTERVAL"),
        ("Time32(s)", "TIME(0)"),
        ("Time32(ms)", "TIME(3)"),
        ("Time64(µs)", "TIME(6)"),
        ("Time64(ns)", "TIME(9)"),
        ("Timestamp(ns, \"UTC\")", "TIMESTAMP_LTZ(9)"),
        ("Timestamp(µs, \"UTC\")", "TIMESTAMP_LTZ(6)"),
        ("Timestamp(ms, \"UTC\")", "TIMESTAMP_LTZ(3)"),
        ("Timestamp(s, \"UTC\")", "TIMESTAMP_LTZ(0)"),
        ("Timestamp(ns)", "TIMESTAMP(9)"),
        ("Timestamp(µs)", "TIMESTAMP(6)"),
        ("Timestamp(ms)", "TIMESTAMP(3)"),
        ("Timestamp(s)", "TIMESTAMP(0)"),
        ("Boolean", "BOOLEAN"),
        ("LargeBinary", "BYTES"),
        ("BinaryView", "BYTES"),
        ("Binary", "BYTES"),
    ];
    let mut text = with_nested_types(message);
    for (arrow, sql) in NAMES {
        text = text.replace(arrow, sql);
    }
    with_null(&text)
}

/// Replaces the names of types that are made of others, as far as they are whole.
fn with_nested_types(message: &str) -> String {
    const KINDS: [&str; 3] = ["List(", "Struct(", "Map("];
    let (mut shown, mut rest) = (String::new(), message);
    while let Some(start) = KINDS.iter().filter_map(|kind| rest.find(kind)).min() {
        let end = closing(&rest[start..]).map(|length| start + length);
        let named = end.and_then(|end| rest[start..end].parse::<DataType>().ok());
        shown.push_str(&rest[..start]);
        let (name, next) = match (named, end) {
            (Some(data_type), Some(end)) => (sql_type_name(&data_type), end),
            _ => (rest[start..=start].to_string(), start + 1),
        };
        shown.push_str(&name);
        rest = &rest[next..];
    }
    shown + rest
}

/// How long a text is up to the bracket that closes its first one.
fn closing(text: &str) -> Option<usize> {
    let (mut open, mut quoted) = (0usize, false);
    for (at, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '(' if !quoted => open += 1,
            ')' if !quoted => {
                open -= 1;
                if open == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// `NULL` in place of the name of its type.
fn with_null(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("Null") {
        let (before, after) = (&rest[..at], &rest[at + "Null".len()..]);
        let within = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        let alone = !within(before.chars().next_back()) && !within(after.chars().next());
        shown.push_str(before);
        shown.push_str(if alone { "NULL" } else { "Null" });
        rest = after;
    }
    shown + rest
}

/// Makes DataFusion use [`arrow_type`] for CAST and typed literals.
#[derive(Debug)]
pub(crate) struct Types;

impl TypePlanner for Types {
    fn plan_type_field(&self, sql_type: &SqlType) -> DfResult<Option<FieldRef>> {
        // INTERVAL literals are planned by DataFusion.
        if matches!(sql_type, SqlType::Interval { .. }) {
            return Ok(None);
        }
        let data_type = arrow_type(sql_type)?;
        Ok(Some(Arc::new(Field::new("", data_type, true))))
    }
}

/// The type that a misspelled one was probably meant to be.
fn closest_type(name: &str) -> Option<&'static str> {
    const TYPES: &str = "\
        BOOLEAN TINYINT SMALLINT INT INTEGER BIGINT FLOAT DOUBLE REAL DECIMAL STRING VARCHAR \
        BYTES DATE TIME TIMESTAMP TIMESTAMP_LTZ";
    let name = name.split('(').next().unwrap_or(name).trim();
    closest(name, TYPES.split_whitespace())
}

/// Types that only DataFusion's functions give, as the engine takes them.
pub(crate) fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
        DataType::BinaryView | DataType::LargeBinary | DataType::FixedSizeBinary(_) => {
            DataType::Binary
        }
        DataType::Float16 => DataType::Float32,
        DataType::Dictionary(_, value) => plain_type(value),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::type_grammar::map_type;

    #[test]
    fn types_within_messages_get_their_sql_names() {
        let field = |name: &str, of: DataType| Field::new(name, of, true);
        let list = DataType::List(Arc::new(field("item", DataType::Int32)));
        let row = DataType::Struct(vec![field("a (b", list.clone())].into());
        let map = map_type(DataType::Utf8, row.clone(), true);
        for of in [list, row, map] {
            let text = with_sql_types(&format!("no {of} and ({of}), Int64: {of}"));
            let name = sql_type_name(&of);
            assert_eq!(text, format!("no {name} and ({name}), BIGINT: {name}"));
        }
        assert_eq!(
            with_sql_types("List(Int32 and List(x) of Utf8"),
            "List(INT and List(x) of STRING"
        );
    }
}
