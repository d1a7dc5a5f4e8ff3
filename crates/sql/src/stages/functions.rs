//! The functions that queries may call: DataFusion's functions with the same meaning as Flink's,
//! and Flink's functions that DataFusion lacks.

use datafusion_common::TableReference;
use datafusion_common::config::ConfigOptions;
use datafusion_expr::planner::{ContextProvider, ExprPlanner, RelationPlanner, TypePlanner};
use datafusion_expr::{AggregateUDF, HigherOrderUDF, TableSource, WindowUDF};
use millstream_contract::declaration::literal;

use crate::expr::aggregates::{Aggregate, CountStar, GROUPING, GroupingFunction, all_aggregates};
use crate::expr::located::{NAMED_CAST, named_cast};
use crate::expr::registered::is_registered;
use crate::expr::scalars::SpecialSyntax;
use crate::names::catalog::{Catalog, Entry, FileTables};
use crate::names::handles::{TableHandle, ViewHandle};
use crate::stages::{
    as_of, ranking, unnest::Unnests, windows::group_windows::marker,
    windows::window_functions::WindowFunctions,
};
use crate::syntax::prelude::*;
use crate::syntax::{statement::is_path, types::Types};

/// DataFusion's functions that may be called, by the names they have there.
///
/// Not on the list: what is not a function of its arguments (`random`, `uuid`), what looks inside
/// Arrow (`arrow_cast`, `arrow_typeof`, `get_field`), what makes values that have no SQL type here
/// (`regexp_match`, `struct`), and what means something else in Flink.
const SCALARS: &str = "\
    abs acos acosh asin asinh atan atan2 atanh cbrt cos cosh cot degrees exp gcd isnan lcm ln log \
    log10 log2 nanvl pi power radians signum sin sinh sqrt tan tanh ascii bit_length btrim \
    character_length concat concat_ws contains ends_with initcap levenshtein lower ltrim \
    octet_length repeat reverse rtrim split_part starts_with to_hex translate upper encode decode \
    make_date to_char to_date to_timestamp_seconds to_timestamp_micros to_timestamp_nanos \
    to_unixtime coalesce greatest least nullif nvl nvl2";

/// Names that would mean something else here than in Flink.
const OTHER_MEANING: &[&str] = &["date_format"];

/// Names called by syntax of their own, or rewritten to another function
/// ([`rewrite`](crate::stages::rewrite), [`ranking`]); and the form of the call, where only calls
/// of this form are rewritten.
const WRITTEN: &[(&str, &str)] = &[
    ("cast", ""),
    ("ceiling", "CEILING(number)"),
    ("date_format", "DATE_FORMAT(time, 'yyyy-MM-dd')"),
    ("dayofmonth", "DAYOFMONTH(time)"),
    ("dayofweek", "DAYOFWEEK(time)"),
    ("dayofyear", "DAYOFYEAR(time)"),
    ("dense_rank", ""),
    ("e", "E()"),
    ("endswith", "ENDSWITH(text, part)"),
    ("extract", ""),
    ("from_base64", "FROM_BASE64(text)"),
    ("from_unixtime", "FROM_UNIXTIME(seconds) or FROM_UNIXTIME(seconds, 'yyyy-MM-dd')"),
    ("hour", "HOUR(time)"),
    ("if", "IF(condition, then, otherwise)"),
    ("json_array", ""),
    ("json_object", ""),
    ("lcase", "LCASE(text)"),
    ("locate", "LOCATE(part, text) or LOCATE(part, text, from)"),
    ("minute", "MINUTE(time)"),
    ("mod", "MOD(a, b)"),
    ("month", "MONTH(time)"),
    ("quarter", "QUARTER(time)"),
    ("rank", ""),
    ("row_number", ""),
    ("second", "SECOND(time)"),
    ("sign", "SIGN(number)"),
    ("startswith", "STARTSWITH(text, part)"),
    ("to_base64", "TO_BASE64(text)"),
    ("truncate", "TRUNCATE(number) or TRUNCATE(number, digits)"),
    ("try_cast", ""),
    ("try_to_timestamp", "TRY_TO_TIMESTAMP(text) or TRY_TO_TIMESTAMP(text, 'yyyy-MM-dd')"),
    (
        "try_to_timestamp_ltz",
        "TRY_TO_TIMESTAMP_LTZ(text) or TRY_TO_TIMESTAMP_LTZ(text, 'yyyy-MM-dd')",
    ),
    ("ucase", "UCASE(text)"),
    ("unix_timestamp", "UNIX_TIMESTAMP() or UNIX_TIMESTAMP(time)"),
    ("week", "WEEK(time)"),
    ("year", "YEAR(time)"),
];

/// Everything that can be called.
#[derive(Debug, Clone)]
pub(crate) struct Functions {
    scalars: BTreeMap<String, Arc<ScalarUDF>>,
    aggregates: BTreeMap<&'static str, Arc<AggregateUDF>>,
    expr_planners: Vec<Arc<dyn ExprPlanner>>,
    relation_planners: Vec<Arc<dyn RelationPlanner>>,
    types: Arc<Types>,
    pub(crate) config: Arc<ConfigOptions>,
}

impl Functions {
    pub(crate) fn new() -> Functions {
        let mut scalars = BTreeMap::new();
        for function in datafusion_functions::all_default_functions() {
            if !SCALARS.split_whitespace().any(|name| name == function.name()) {
                continue;
            }
            for name in
                std::iter::once(function.name()).chain(function.aliases().iter().map(|a| &**a))
            {
                if !OTHER_MEANING.contains(&name) {
                    scalars.insert(name.to_string(), function.clone());
                }
            }
        }
        for function in crate::expr::scalars::all() {
            for alias in function.aliases() {
                scalars.insert(alias.clone(), function.clone());
            }
            scalars.insert(function.name().to_string(), function);
        }
        let aggregates = all_aggregates()
            .map(|named| (named.0, AggregateUDF::from(Aggregate::new(named))))
            .chain(GROUPING.map(|name| (name, AggregateUDF::from(GroupingFunction { name }))))
            .map(|(name, function)| (name, Arc::new(function)))
            .collect();
        let mut config = ConfigOptions::default();
        config.sql_parser.enable_ident_normalization = false;
        config.sql_parser.map_string_types_to_utf8view = false;
        config.sql_parser.collect_spans = true;
        config.execution.time_zone = None;
        Functions {
            scalars,
            aggregates,
            expr_planners: vec![
                Arc::new(CountStar),
                Arc::new(SpecialSyntax),
                Arc::new(datafusion_functions::core::planner::CoreFunctionPlanner::default()),
            ],
            relation_planners: vec![Arc::new(Unnests), Arc::new(WindowFunctions)],
            types: Arc::new(Types),
            config: Arc::new(config),
        }
    }

    /// Adds a function of the program's own; replaces a registered function of the same name.
    ///
    /// # Errors
    /// If a function of SQL has this name.
    pub(crate) fn register(&mut self, function: ScalarUDF) -> std::result::Result<(), String> {
        let name = function.name().to_string();
        if self.has(&name) && !self.scalars.get(&name).is_some_and(|own| is_registered(own)) {
            return Err("SQL has a function of this name".into());
        }
        self.scalars.insert(name, Arc::new(function));
        Ok(())
    }

    /// Whether there is a function of this (lower case) name.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.scalars.contains_key(name)
            || self.aggregates.contains_key(name)
            || marker(name).is_some()
            || as_of::marker(name).is_some()
    }

    /// Whether a call of this (lower case) name reaches a function, perhaps after a rewrite. Such a
    /// name cannot be declared again.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.knows(name) || WRITTEN.iter().any(|(written, _)| *written == name)
    }

    /// How a function of this (lower case) name is called that is there for such calls only.
    pub(crate) fn form(&self, name: &str) -> Option<&'static str> {
        let form = WRITTEN.iter().find(|(written, _)| *written == name).map(|(_, form)| *form);
        form.filter(|form| !form.is_empty())
    }

    /// Whether the function of this (lower case) name is of several rows.
    pub(crate) fn is_aggregate(&self, name: &str) -> bool {
        self.aggregates.contains_key(name)
    }

    /// The main name of a scalar function with this (lower case) alias.
    pub(crate) fn own_name(&self, name: &str) -> Option<&str> {
        let function = self.scalars.get(name).filter(|function| function.name() != name)?;
        let own = self.scalars.get(function.name());
        own.filter(|own| *own == function).map(|own| own.name())
    }

    /// The names of all functions, as `SHOW FUNCTIONS` and completion have them.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.scalars.keys().map(String::as_str);
        // Names that begin otherwise belong to calls of rewritten syntax.
        let is_written = |name: &&str| name.starts_with(|c: char| c.is_ascii_alphabetic());
        names
            .chain(self.aggregates.keys().copied())
            .filter(is_written)
            .chain(WRITTEN.iter().map(|(name, _)| *name))
    }

    /// The names of all scalar functions.
    #[cfg(test)]
    pub(crate) fn scalar_names(&self) -> impl Iterator<Item = &str> {
        self.scalars.keys().map(String::as_str)
    }

    /// The function whose name is most like `name`.
    pub(crate) fn closest(&self, name: &str) -> Option<String> {
        let scalars = self.scalars.keys().map(String::as_str);
        closest(name, scalars.chain(self.aggregates.keys().copied())).map(str::to_uppercase)
    }
}

/// Context of DataFusion's SQL planner for a single statement.
pub(crate) struct Context<'a> {
    pub(crate) catalog: &'a Catalog,
    pub(crate) functions: &'a Functions,
    /// The files that the statement names as tables.
    pub(crate) files: &'a FileTables,
    /// Of tables, only columns of these names.
    pub(crate) columns: Option<&'a HashSet<String>>,
}

impl ContextProvider for Context<'_> {
    fn get_table_source(&self, name: TableReference) -> DfResult<Arc<dyn TableSource>> {
        let TableReference::Bare { table } = &name else {
            let message = format!("'{name}' names a database, and there are none");
            let error = SqlError::unsupported(message);
            return Err(error
                .help(match name.to_string() {
                    path if is_path(&path) => {
                        format!("a file stands in single quotes: FROM {}", literal(&path))
                    }
                    _ => "write the table's name alone".to_string(),
                })
                .into());
        };
        match self.catalog.get(table) {
            Some(Entry::Table(entry)) => {
                Ok(Arc::new(TableHandle::new(entry.clone(), self.columns)))
            }
            Some(Entry::View(view)) => Ok(Arc::new(ViewHandle::new(view.clone(), self.columns))),
            None => match self.files.get(&**table) {
                Some(entry) => Ok(Arc::new(TableHandle::new(entry.clone(), self.columns))),
                None => Err(self.catalog.unknown(table).into()),
            },
        }
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &self.functions.expr_planners
    }

    fn get_relation_planners(&self) -> &[Arc<dyn RelationPlanner>] {
        &self.functions.relation_planners
    }

    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        Some(self.functions.types.clone())
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        if name == NAMED_CAST {
            return Some(named_cast());
        }
        self.functions
            .scalars
            .get(name)
            .cloned()
            .or_else(|| marker(name).or_else(|| as_of::marker(name)))
    }

    fn get_higher_order_meta(&self, _: &str) -> Option<Arc<HigherOrderUDF>> {
        None
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.functions.aggregates.get(name).cloned()
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        ranking::function(name)
    }

    fn get_variable_type(&self, _: &[String]) -> Option<arrow::datatypes::DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        &self.functions.config
    }

    fn udf_names(&self) -> Vec<String> {
        self.functions.scalars.keys().cloned().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        vec![]
    }

    fn udaf_names(&self) -> Vec<String> {
        self.functions.aggregates.keys().map(|n| n.to_string()).collect()
    }

    fn udwf_names(&self) -> Vec<String> {
        vec![]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalar_test_forms::FORMS;

    #[test]
    fn every_call_that_is_tested_is_listed() {
        let functions = Functions::new();
        let names: HashSet<&str> = functions.names().collect();
        let calls = FORMS.iter().filter_map(|form| form.split_once('(')).map(|(name, _)| name);
        let calls: Vec<_> = calls.filter(|name| !name.contains([' ', '?'])).collect();
        assert!(calls.len() > 50, "{calls:?}");
        for name in calls {
            assert!(names.contains(&*name.to_lowercase()), "{name}");
        }
    }

    #[test]
    fn every_function_that_is_listed_is_there() {
        let functions = Functions::new();
        assert!(functions.names().all(|name| functions.has(name)));
        assert!(functions.has("mod") && !functions.knows("mod") && !functions.has("half"));
    }

    #[test]
    fn calls_that_are_rewritten_have_a_form() {
        let functions = Functions::new();
        for (name, form) in WRITTEN.iter().filter(|(_, form)| !form.is_empty()) {
            assert!(form.to_lowercase().starts_with(&format!("{name}(")), "{name}: {form}");
            assert!(!functions.knows(name), "{name}");
        }
    }

    #[test]
    fn every_function_can_be_called_by_its_own_name() {
        let functions = Functions::new();
        let mut others = 0;
        for (name, function) in &functions.scalars {
            if name != function.name() {
                assert_eq!(functions.own_name(name), Some(function.name()), "{name}");
                others += 1;
            }
        }
        assert!(others > 10, "{others}");
        assert_eq!(functions.own_name("nvl"), Some("ifnull"));
        assert_eq!(functions.own_name("ifnull"), None);
    }
}
