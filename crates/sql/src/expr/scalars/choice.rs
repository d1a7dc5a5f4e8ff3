//! `COALESCE`, `IFNULL`, `NVL` and `NVL2`: each argument is evaluated once and only for the rows
//! that need it. DataFusion rewrites them as CASE with the first arguments duplicated, so twenty
//! nested calls would become a million parts.

use crate::expr::composed::{Compose, Composed, Parts};
use crate::expr::reads::{read, reads_of};
use crate::syntax::prelude::*;

use std::hash::DefaultHasher;

use arrow::{array::new_null_array, buffer::BooleanBuffer, compute::kernels::zip::zip};
use datafusion_physical_expr::ScalarFunctionExpr;
use millstream_contract::reads::Reads;

use super::picked::is_there;

/// DataFusion's function, evaluated otherwise.
#[derive(Debug, PartialEq, Eq)]
struct Choice {
    function: Arc<ScalarUDF>,
    name: &'static str,
    aliases: Vec<String>,
}

/// The functions that choose the first argument that is not NULL, or test an argument for NULL.
/// IFNULL is COALESCE of two: DataFusion's takes few types and works them out exponentially often.
pub(super) fn choices() -> [ScalarUDF; 3] {
    let choice = |function, name, aliases: &[&str]| {
        let aliases = aliases.iter().map(|alias| alias.to_string()).collect();
        ScalarUDF::from(Choice { function, name, aliases })
    };
    let coalesce = datafusion_functions::core::coalesce;
    [
        choice(coalesce(), "coalesce", &[]),
        choice(coalesce(), "ifnull", &["nvl"]),
        choice(datafusion_functions::core::nvl2(), "nvl2", &[]),
    ]
}

/// `COALESCE` of these.
pub(crate) fn coalesce(args: Vec<Expr>) -> Expr {
    let [coalesce, ..] = choices();
    coalesce.call(args)
}

/// The names of arguments that are no longer than this stand in the name of a call.
const NAME_BYTES_MAX: usize = 500;

impl Hash for Choice {
    /// Hash of the name alone, since the function behind the name is long.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl Choice {
    /// Whether the first argument is tested alone: `NVL2(tested, if not null, if null)`.
    fn tests_only(&self) -> bool {
        self.name == "nvl2"
    }
}

impl ScalarUDFImpl for Choice {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn schema_name(&self, args: &[Expr]) -> DfResult<String> {
        let args: Vec<String> = args.iter().map(|arg| arg.schema_name().to_string()).collect();
        let args = args.join(",");
        if args.len() <= NAME_BYTES_MAX {
            return Ok(format!("{}({args})", self.name));
        }
        // It would be written anew at every level above.
        let mut state = DefaultHasher::new();
        args.hash(&mut state);
        Ok(format!("{}(…{:x})", self.name, state.finish()))
    }

    fn signature(&self) -> &Signature {
        self.function.signature()
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        self.function.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        self.function.return_field_from_args(args)
    }

    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        if self.name == "ifnull" && types.len() != 2 {
            return plan_err!("IFNULL takes two arguments, not {}", types.len());
        }
        self.function.coerce_types(types)
    }

    fn short_circuits(&self) -> bool {
        true
    }

    /// Of constants: what is in a plan is a [`ChoiceExpr`].
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let rows = args.number_rows;
        let argument = |at: usize, _: Option<&BooleanArray>| args.args[at].to_array(rows);
        let chosen = choose(
            self.tests_only(),
            args.args.len(),
            args.return_field.data_type(),
            rows,
            argument,
        )?;
        Ok(ColumnarValue::Array(chosen))
    }
}

/// A choice among arguments that are evaluated where they are needed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ChoiceExpr {
    tests_only: bool,
    field: FieldRef,
    /// Of each argument.
    reads: Vec<Reads>,
}

impl ChoiceExpr {
    /// The compiled form of a call; `None` if `expr` is none of these functions.
    pub(crate) fn of_call(
        expr: &Arc<dyn PhysicalExpr>,
        schema: &Schema,
    ) -> Option<Arc<dyn PhysicalExpr>> {
        let call = expr.downcast_ref::<ScalarFunctionExpr>()?;
        let choice = call.fun().inner().downcast_ref::<Choice>()?;
        let field = call.return_field(schema).ok()?;
        let chosen = ChoiceExpr { tests_only: choice.tests_only(), field, reads: vec![] };
        Some(chosen.over(call.args().to_vec()))
    }
}

/// Puts the result together. `argument` gives an argument's values for the requested rows; values
/// of the remaining rows may be anything.
fn choose(
    tests_only: bool,
    arguments: usize,
    data_type: &DataType,
    rows: usize,
    argument: impl Fn(usize, Option<&BooleanArray>) -> DfResult<ArrayRef>,
) -> DfResult<ArrayRef> {
    let typed = |at: usize, wanted: Option<&BooleanArray>| {
        let array = argument(at, wanted)?;
        if array.data_type() == data_type { Ok(array) } else { Ok(cast(&array, data_type)?) }
    };
    if tests_only {
        let null = nulls(&argument(0, None)?);
        let present = BooleanArray::new(!&null, None);
        if null.count_set_bits() == rows {
            return typed(2, None);
        }
        if null.count_set_bits() == 0 {
            return typed(1, None);
        }
        let (then, otherwise) =
            (typed(1, Some(&present))?, typed(2, Some(&BooleanArray::new(null, None)))?);
        return Ok(zip(&present, &then, &otherwise)?);
    }
    let mut chosen = new_null_array(data_type, rows);
    for at in 0..arguments {
        let open = nulls(&chosen);
        if open.count_set_bits() == rows {
            chosen = typed(at, None)?;
        } else if open.count_set_bits() > 0 {
            let open = BooleanArray::new(open, None);
            let more = typed(at, Some(&open))?;
            chosen = zip(&open, &more, &chosen)?;
        } else {
            break;
        }
    }
    Ok(chosen)
}

/// The rows that are NULL.
fn nulls(array: &ArrayRef) -> BooleanBuffer {
    match array.logical_nulls() {
        Some(nulls) => !nulls.inner(),
        None => BooleanBuffer::new_unset(array.len()),
    }
}

impl Compose for ChoiceExpr {
    fn over(self, parts: Parts) -> Arc<dyn PhysicalExpr> {
        let reads = parts.iter().map(reads_of).collect();
        Arc::new(Composed { how: ChoiceExpr { reads, ..self }, parts })
    }

    fn data_type(&self, _: &Parts, _: &Schema) -> DfResult<DataType> {
        Ok(self.field.data_type().clone())
    }

    fn nullable(&self, _: &Parts, _: &Schema) -> DfResult<bool> {
        Ok(self.field.is_nullable())
    }

    fn evaluate(&self, parts: &Parts, batch: &RecordBatch) -> DfResult<ColumnarValue> {
        let rows = batch.num_rows();
        let argument = |at: usize, wanted: Option<&BooleanArray>| {
            let arg = &parts[at];
            let value = match wanted {
                Some(wanted) if !is_there(arg) => {
                    arg.evaluate_selection(&read(&self.reads[at], batch)?, wanted)?
                }
                _ => arg.evaluate(batch)?,
            };
            value.into_array(rows)
        };
        let data_type = self.field.data_type();
        let chosen = choose(self.tests_only, parts.len(), data_type, rows, argument)?;
        Ok(ColumnarValue::Array(chosen))
    }

    fn write(&self, parts: &Parts, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
        write!(f, "{}({})", if self.tests_only { "NVL2" } else { "COALESCE" }, parts.join(", "))
    }
}
