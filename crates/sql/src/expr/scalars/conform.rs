//! Values of rows, arrays and maps as a table declares them: fields by their position, whatever
//! their names, and each with the cast that an INSERT does to a value on its own.

use arrow::array::{ListArray, MapArray, StructArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::util::display::FormatOptions;

use super::bounded::unbounded;
use super::fewer_digits::{rounded_down, ticks_in_one};
use crate::expr::udf::{call_of, called, first_array, result_of};
use crate::syntax::prelude::*;

/// `expr` as a value of the type `to`, which is made of others.
pub(crate) fn conformed(expr: Expr, to: DataType) -> Expr {
    call_of(Conform { to }, vec![expr])
}

/// The argument of a conforming call; `None` if `expr` is no such call.
pub(crate) fn within_conformed(expr: &Expr) -> Option<&Expr> {
    let Expr::ScalarFunction(call) = expr else { return None };
    unbounded(&call.func).inner().downcast_ref::<Conform>()?;
    call.args.first()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Conform {
    to: DataType,
}

impl ScalarUDFImpl for Conform {
    called!("$conform", ONE);

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(self.to.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.to.clone(), nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        result_of(&args, conform(&first_array(&args)?, &self.to)?)
    }
}

fn conform(array: &ArrayRef, to: &DataType) -> DfResult<ArrayRef> {
    if array.data_type() == to {
        return Ok(array.clone());
    }
    match (array.data_type(), to) {
        (DataType::Struct(_), DataType::Struct(fields)) => {
            let row = array.as_struct();
            let columns = row.columns().iter().zip(fields);
            let columns = columns.map(|(column, field)| conform(column, field.data_type()));
            let columns = columns.collect::<DfResult<Vec<_>>>()?;
            Ok(Arc::new(StructArray::try_new(fields.clone(), columns, row.nulls().cloned())?))
        }
        (DataType::List(_), DataType::List(field)) => {
            let list = array.as_list::<i32>();
            let (offsets, nulls) = (list.offsets().clone(), list.nulls().cloned());
            let values = conform(list.values(), field.data_type())?;
            Ok(Arc::new(ListArray::try_new(field.clone(), offsets, values, nulls)?))
        }
        (DataType::Map(..), DataType::Map(field, sorted)) => {
            let map = array.as_map();
            let entries: ArrayRef = Arc::new(map.entries().clone());
            let entries = conform(&entries, field.data_type())?;
            let (offsets, nulls) = (map.offsets().clone(), map.nulls().cloned());
            let entries = entries.as_struct().clone();
            Ok(Arc::new(MapArray::try_new(field.clone(), offsets, entries, nulls, *sorted)?))
        }
        (from, to) if let Some(ticks) = ticks_in_one(from, to) => {
            rounded_down(array, to, ticks, false)
        }
        _ => {
            let options = CastOptions { safe: false, format_options: FormatOptions::default() };
            Ok(cast_with_options(array, to, &options)?)
        }
    }
}
