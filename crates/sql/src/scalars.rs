//! Scalar functions that DataFusion lacks.

mod window;

use std::sync::Arc;

use datafusion_expr::ScalarUDF;

pub(crate) use window::{WindowBound, window_bound};

/// Those that queries may call by name.
pub(crate) fn all() -> Vec<Arc<ScalarUDF>> {
    vec![]
}
