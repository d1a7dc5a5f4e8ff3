//! Scalar functions that DataFusion lacks or understands differently.

mod bounded;
mod by_pattern;
mod calendar;
mod choice;
mod clock_texts;
mod codes;
mod conform;
mod convert_tz;
mod current;
mod date_ceil;
mod date_trunc;
mod dates;
mod decided;
mod digits;
mod doubles;
mod exact;
mod extract;
mod far_times;
mod fewer_digits;
mod finer_times;
mod hashes;
mod interval_order;
mod interval_rules;
mod json;
mod json_made;
mod json_path;
mod json_query;
mod lengths;
mod like;
mod local;
mod maps;
mod nested;
mod nested_rules;
mod number_casts;
mod overlapping;
mod picked;
mod planner;
mod regexps;
mod rounded;
mod rows;
mod similar;
mod stamps;
mod strict;
mod strings;
mod time_format;
mod time_text;
mod time_units;
mod to_timestamp;
mod urls;
mod whole;
mod window;

use datafusion_common::config::ConfigOptions;

use crate::expr::constants::fold_arithmetic;
use crate::syntax::prelude::*;

pub(crate) use bounded::{
    BoundedCall, Constant, TooMuchText, bound_constants, bound_texts, bounded_array, joined_texts,
};
pub(crate) use by_pattern::BY_PATTERN;
pub(crate) use choice::{ChoiceExpr, coalesce};
pub(crate) use conform::{conformed, within_conformed};
pub(crate) use date_ceil::CEIL_TIME;
pub(crate) use date_trunc::SUNDAY_WEEK;
pub(crate) use dates::{DatesAsTimes, dates_as_times};
pub(crate) use decided::{DECIDED, decided, held, released, within_decided, within_held};
pub(crate) use exact::{Digits, digits_of, exact_operation};
pub(crate) use far_times::compare_far;
pub(crate) use interval_order::measured_interval;
pub(crate) use json::{fits, returned_type};
pub(crate) use json_path::JsonPath;
pub(crate) use lengths::text_bytes;
pub(crate) use local::{IN_SOME_WINDOW, with_zone};
pub(crate) use nested::{Access, SAFE, access, makes_row, row_fields, row_of};
pub(crate) use number_casts::number_cast;
pub(crate) use overlapping::Overlapping;
pub(crate) use picked::{PickExpr, is_field, picks};
pub(crate) use planner::SpecialSyntax;
pub(crate) use rounded::Rounded;
pub(crate) use similar::similar_parts;
pub(crate) use stamps::{
    CURRENT_WATERMARK, is_read_time, read_time_type, refuse_stamps, watermark_of, watermark_type,
};
pub(crate) use time_text::written_time;
pub(crate) use time_units::{time_step, unit_names};
pub(crate) use window::{Grid, Times, WindowBound, on_grid, start_on, window_bound, window_times};

/// Writes `expr`, which is over `schema`, with functions of our own where DataFusion means
/// something else, works out the arithmetic of constants, and bounds texts.
pub(crate) fn as_meant(
    expr: Expr,
    schema: &DFSchema,
    config: &Arc<ConfigOptions>,
) -> DfResult<Expr> {
    interval_rules::refuse_lost_parts(&expr, schema)?;
    let expr = finer_times::keep_digits(rounded::keep_rounding(expr, schema)?, schema)?;
    let expr = local::in_local_time(expr, schema, config)?;
    nested_rules::refuse_whole_values(&expr, schema)?;
    regexps::check_patterns(&expr)?;
    let expr = number_casts::cast_numbers(time_text::write_times(expr, schema)?, schema)?;
    let expr = interval_order::compare_intervals(expr, schema)?;
    let expr = similar::match_similar(like::plain_backslashes(expr, schema)?)?;
    fold_arithmetic(bound_texts(expr, schema)?, schema, config)
}

/// Functions that queries may call by name.
pub(crate) fn all() -> Vec<Arc<ScalarUDF>> {
    let mut functions: Vec<ScalarUDF> = Vec::new();
    for function in datafusion_functions::core::functions() {
        match function.name() {
            "greatest" | "least" => functions.push(strict::null_if_any_null(function)),
            "nullif" => functions.push(strict::null_if(function)),
            _ => {}
        }
    }
    for function in datafusion_functions::datetime::functions() {
        match function.name() {
            "date_trunc" => functions.push(date_trunc::date_trunc(function)),
            "date_bin" => functions.push(date_trunc::date_bin(function)),
            "date_part" => functions.push(extract::extract(function)),
            "to_char" => functions.push(time_format::time_format(function)),
            "to_timestamp" | "to_timestamp_millis" => {
                functions.push(to_timestamp::to_timestamp(function))
            }
            _ => {}
        }
    }
    functions.extend(choice::choices());
    for function in datafusion_functions::math::functions() {
        match function.name() {
            "round" | "trunc" => functions.push(digits::to_digits(function)),
            "ceil" | "floor" => functions.push(whole::to_whole(function)),
            _ => {}
        }
    }
    functions.extend(time_units::functions());
    functions.extend(strings::functions());
    functions.extend(regexps::functions());
    functions.extend(hashes::functions());
    functions.extend(json::functions());
    functions.extend(json_made::functions());
    functions.extend(codes::functions());
    functions.extend(urls::functions());
    functions.extend([date_ceil::function(), convert_tz::convert_function()]);
    functions.push(to_timestamp::to_timestamp_ltz());
    functions.extend(by_pattern::functions());
    functions.extend(nested::functions());
    functions.extend(stamps::functions());
    functions.extend(current::functions());
    functions.into_iter().map(Arc::new).collect()
}
