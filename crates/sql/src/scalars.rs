//! Scalar functions that DataFusion lacks, or that mean something else there.

mod bounded;
mod choice;
mod date_trunc;
mod interval_order;
mod strict;
mod strings;
mod time_text;
mod window;

use std::sync::Arc;

use datafusion_expr::ScalarUDF;

pub(crate) use bounded::{
    BoundedCall, Constant, TooMuchText, bound_constants, bound_texts, bounded_array, joined_texts,
    text_bytes,
};
pub(crate) use choice::ChoiceExpr;
pub(crate) use interval_order::{compare_intervals, measured_interval};
pub(crate) use time_text::{write_times, written_time};
pub(crate) use window::{WindowBound, window_bound};

/// Those that queries may call by name.
pub(crate) fn all() -> Vec<Arc<ScalarUDF>> {
    let core = datafusion_functions::core::functions();
    let strict = core.into_iter().filter(|f| matches!(f.name(), "greatest" | "least"));
    let mut functions: Vec<ScalarUDF> = strict.map(strict::null_if_any_null).collect();
    for function in datafusion_functions::datetime::functions() {
        match function.name() {
            "date_trunc" => functions.push(date_trunc::date_trunc(function)),
            "date_bin" => functions.push(date_trunc::date_bin(function)),
            _ => {}
        }
    }
    functions.extend(choice::choices());
    functions.push(strings::split_index());
    functions.push(strings::regexp_extract());
    functions.into_iter().map(Arc::new).collect()
}
