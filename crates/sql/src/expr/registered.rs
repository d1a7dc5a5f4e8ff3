//! Scalar functions of the program's own, over whole columns.

use std::error::Error;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;
use datafusion_common::{Result as DfResult, ScalarValue, exec_datafusion_err, exec_err};
use datafusion_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::syntax::types::{plain_type, sql_type_name};

/// Columns in, a column of the same length out. An error is the message for the user.
pub type ScalarFunction =
    dyn Fn(&[ArrayRef]) -> Result<ArrayRef, Box<dyn Error + Send + Sync>> + Send + Sync;

/// A registered function.
struct Registered {
    /// In lower case.
    name: String,
    signature: Signature,
    returns: DataType,
    call: Arc<ScalarFunction>,
}

/// The function `name`, which is in lower case.
///
/// # Errors
/// A message about a name that cannot be called, and about types that no column has.
pub(crate) fn registered(
    name: &str,
    arguments: &[DataType],
    returns: DataType,
    call: Arc<ScalarFunction>,
) -> Result<ScalarUDF, String> {
    let is_word = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_word {
        return Err("its name is a word of letters, digits and '_'".into());
    }
    if arguments.is_empty() {
        return Err("it has an argument or more".into());
    }
    for data_type in arguments.iter().chain([&returns]) {
        let plain = plain_type(data_type);
        if plain != *data_type {
            return Err(format!("columns are of type {plain}, not {data_type}"));
        }
    }
    let signature = Signature::exact(arguments.to_vec(), Volatility::Immutable);
    Ok(ScalarUDF::from(Registered { name: name.into(), signature, returns, call }))
}

/// Whether a function is a registered function.
pub(crate) fn is_registered(function: &ScalarUDF) -> bool {
    function.inner().is::<Registered>()
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registered").field("name", &self.name).finish_non_exhaustive()
    }
}

impl PartialEq for Registered {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.call, &other.call)
    }
}

impl Eq for Registered {}

impl Hash for Registered {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Registered {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(self.returns.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let columns: Vec<_> =
            args.args.iter().map(|arg| arg.to_array(rows)).collect::<DfResult<_>>()?;
        let name = self.name.to_uppercase();
        let column =
            (self.call)(&columns).map_err(|error| exec_datafusion_err!("{name}: {error}"))?;
        if column.data_type() != &self.returns || column.len() != rows {
            return exec_err!(
                "{name} gave {} values of type {}, where {rows} of type {} were expected",
                column.len(),
                sql_type_name(column.data_type()),
                sql_type_name(&self.returns)
            );
        }
        Ok(match constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&column, 0)?),
            false => ColumnarValue::Array(column),
        })
    }
}
