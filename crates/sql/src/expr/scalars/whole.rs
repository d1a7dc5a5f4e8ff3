//! `CEIL` and `FLOOR` as in Flink: of a `DECIMAL(p, s)` they give a `DECIMAL(p, 0)`, and an integer
//! stays what it is. DataFusion keeps a decimal's type, in which 10.00 for 9.99 has no room, and
//! makes a double of an integer, which has not as many digits.

use arrow::datatypes::Decimal128Type;

use crate::expr::udf::{called, no_such, result_of, rows_of};
use crate::syntax::prelude::*;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Whole {
    inner: Arc<ScalarUDF>,
}

/// `CEIL(x)` or `FLOOR(x)`; `inner` is DataFusion's.
pub(super) fn to_whole(inner: Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::from(Whole { inner })
}

impl ScalarUDFImpl for Whole {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    called!(@ CHECKED);

    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        match types {
            [DataType::Null] => Ok(vec![DataType::Float64]),
            [number] if number.is_numeric() => Ok(vec![number.clone()]),
            _ => {
                let name = self.name().to_uppercase();
                no_such(&name, types, &format!("{name}(number) or {name}(time TO unit)"))
            }
        }
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        match types {
            [DataType::Decimal128(precision, 1..)] => Ok(DataType::Decimal128(*precision, 0)),
            [integer] if integer.is_integer() => Ok(integer.clone()),
            _ => self.inner.return_type(types),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let [value] = &args.args[..] else { return self.inner.invoke_with_args(args) };
        let (precision, scale) = match value.data_type() {
            DataType::Decimal128(precision, scale @ 1..) => (precision, scale),
            integer if integer.is_integer() => return Ok(value.clone()),
            _ => return self.inner.invoke_with_args(args),
        };
        let array = value.to_array(rows_of(&args))?;
        // At most 10^38, which 128 bits hold.
        let one = 10_i128.pow(u32::from(scale.unsigned_abs()));
        let up = self.name() == "ceil";
        let whole = array.as_primitive::<Decimal128Type>().unary::<_, Decimal128Type>(|value| {
            value.div_euclid(one) + i128::from(up && value.rem_euclid(one) != 0)
        });
        let whole = whole.with_precision_and_scale(precision, 0)?;
        result_of(&args, Arc::new(whole))
    }
}
