//! Rewrites calls of Flink's functions with a different name, different arguments or a different
//! meaning in DataFusion. The rewrite happens before planning, on the syntax tree, so that
//! positions stay right.

use std::str::FromStr;

use datafusion_sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, CastKind, CeilFloorKind, DataType, DateTimeField, Expr,
    ExtractSyntax, Function, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectNamePart,
    TimezoneInfo, UnaryOperator, Value, helpers,
};
use millstream_contract::zone::Zone;

use crate::expr::located::NAMED_CAST;
use crate::expr::scalars::{BY_PATTERN, CEIL_TIME, SUNDAY_WEEK, time_step, unit_names};
use crate::stages::{functions::Functions, json_calls, windows::group_windows::mark_group_windows};
use crate::syntax::calls::{function, string};
use crate::syntax::calls::{number_of, value_of};
use crate::syntax::numbers::{decimal, double, keep_casts, negative};
use crate::syntax::pattern::{has_zone, to_strftime};
use crate::syntax::prelude::*;
use crate::syntax::subscripts::{is_field, rewrite_access};
use crate::syntax::{interval_literals::name_units, time_literals::keep_fraction};

/// Rewrites the functions of a query.
pub(crate) fn rewrite_query(mut query: Query, functions: &Functions) -> Result<Query> {
    if let Break(error) = query.walk_mut(&mut Rewriter(functions)) {
        return Err(error);
    }
    // The names of columns without one are found by now.
    mark_group_windows(&mut query)?;
    Ok(query)
}

/// Rewrites the functions of an expression.
pub(crate) fn rewrite_expr(mut expr: Expr, functions: &Functions) -> Result<Expr> {
    expr.walk_mut(&mut Rewriter(functions)).break_value().map_or(Ok(expr), Err)
}

/// Gives every CAST a name of its own: DataFusion calls `CAST(x AS INT)` `x`, so that it could not
/// be told from `x` among the keys and aggregates of a grouping.
pub(crate) fn name_casts(mut query: Query) -> Query {
    struct Casts;
    impl VisitorMut for Casts {
        type Break = ();
        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if let Expr::Cast { data_type, .. } = expr {
                let name = Ident::new(NAMED_CAST);
                let data_type = string(&data_type.to_string());
                *expr = function(&name, NAMED_CAST, vec![expr.clone(), data_type]);
            }
            Continue(())
        }
    }
    let _ = query.walk_mut(&mut Casts);
    query
}

struct Rewriter<'a>(&'a Functions);

impl Rewriter<'_> {
    /// Calls a function by its own name. Of a call by another name DataFusion writes the whole text
    /// beside the call, so that calls within each other would grow exponentially.
    fn name_call(&self, expr: &mut Expr) {
        if let Expr::Function(call) = expr
            && let [ObjectNamePart::Identifier(name)] = &mut call.name.0[..]
            && let Some(own) = self.0.own_name(&name.value.to_lowercase())
        {
            name.value = own.to_string();
        }
    }
}

impl VisitorMut for Rewriter<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        keep_casts(query);
        Continue(())
    }

    /// Computed columns without a name are called what they say: DataFusion would leave CASTs out
    /// of the name, and two columns could then not be told apart.
    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        crate::stages::as_of::move_times(&mut select.from);
        crate::stages::unnest::fold(select);
        let written = select.projection.iter().filter_map(|item| match item {
            SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(name.value.clone()),
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
                parts.last().map(|name| name.value.clone())
            }
            SelectItem::ExprWithAlias { alias, .. } => Some(alias.value.clone()),
            _ => None,
        });
        let written: HashSet<String> = written.collect();
        let mut taken: HashSet<String> = HashSet::new();
        let fields: Vec<bool> = select
            .projection
            .iter()
            .map(|item| {
                matches!(item, SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts))
                if is_field(parts, select))
            })
            .collect();
        for (item, is_field) in select.projection.iter_mut().zip(fields) {
            let SelectItem::UnnamedExpr(expr) = item else { continue };
            let (own, plain) = match &*expr {
                Expr::Identifier(name) => (name.value.clone(), true),
                Expr::CompoundIdentifier(parts) => {
                    (parts.last().map_or(String::new(), |p| p.value.clone()), !is_field)
                }
                computed => (computed.to_string(), false),
            };
            // The second `s` is `s0`, the third `s1`, as in Flink, unless another is called so.
            let numbered = (0..).map(|n| format!("{own}{n}"));
            let mut others = numbered.filter(|name| !written.contains(name));
            let mut name = own.clone();
            while !taken.insert(name.clone()) {
                name = others.next().unwrap_or_default();
            }
            if plain && name == own {
                continue;
            }
            let alias = Ident { value: name, quote_style: Some('`'), span: expr.span() };
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
        Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        let rewritten = match expr {
            // Flink counts the days of a week from 1.
            Expr::Extract {
                field: DateTimeField::Dow | DateTimeField::DayOfWeek,
                expr: of,
                ..
            } => Ok(Some(plus_one(extract(DateTimeField::Dow, (**of).clone())))),
            Expr::Function(call) => rewrite_call(call),
            Expr::BinaryOp { op: BinaryOperator::Custom(_), .. } => Ok(json_calls::is_json(expr)),
            Expr::CompoundFieldAccess { root, access_chain } => {
                rewrite_access(root, access_chain).map(Some)
            }
            Expr::Value(constant) => {
                if let Value::UnicodeStringLiteral(text) = &constant.value {
                    constant.value = Value::SingleQuotedString(text.clone());
                }
                double(constant)
            }
            Expr::Interval(interval) => name_units(interval).map(|()| None),
            Expr::TypedString(constant) => keep_fraction(constant).and_then(|()| decimal(constant)),
            Expr::UnaryOp { op: UnaryOperator::Minus, expr: of } => Ok(negative(of)),
            Expr::Floor { expr: of, field: CeilFloorKind::DateTimeField(unit) }
                if *unit != DateTimeField::NoDateTime =>
            {
                to_unit(of, unit, "FLOOR", "date_trunc").map(Some)
            }
            Expr::Ceil { expr: of, field: CeilFloorKind::DateTimeField(unit), .. }
                if *unit != DateTimeField::NoDateTime =>
            {
                to_unit(of, unit, "CEIL", CEIL_TIME).map(Some)
            }
            Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. } => {
                match escape_char.take() {
                    Some(escape) => backslashed(pattern, Some(&escape.value)),
                    None if string_literal(pattern).is_some() => backslashed(pattern, None),
                    None => Ok((**pattern).clone()),
                }
                .map(|escaped| {
                    **pattern = escaped;
                    None
                })
            }
            Expr::SimilarTo { pattern, escape_char: Some(escape), .. } => {
                escape_character(&escape.value, pattern).map(|_| None)
            }
            _ => Ok(None),
        };
        match rewritten {
            Ok(Some(new)) => *expr = new,
            Ok(None) => {}
            Err(error) => return Break(error.at(Span::new(expr.span()))),
        }
        self.name_call(expr);
        Continue(())
    }
}

/// The one character that ESCAPE names for a pattern.
fn escape_character(escape: &Value, pattern: &Expr) -> Result<char> {
    let one = match escape {
        Value::SingleQuotedString(text) => {
            text.chars().next().filter(|c| c.len_utf8() == text.len())
        }
        _ => None,
    };
    one.ok_or_else(|| {
        SqlError::unsupported("ESCAPE takes one character")
            .at(Span::new(pattern.span()))
            .help("write for example ESCAPE '!'")
    })
}

/// A pattern of LIKE with backslashes, the only escape of DataFusion, in place of `escape`, if
/// given. The pattern's own backslashes stand for themselves.
fn backslashed(pattern: &Expr, escape: Option<&Value>) -> Result<Expr> {
    let refused = |message: &str, help: &str| {
        Err(SqlError::unsupported(message).at(Span::new(pattern.span())).help(help))
    };
    let Some(text) = string_literal(pattern) else {
        let help = "write for example LIKE 'a!%%' ESCAPE '!'";
        return refused("the pattern of LIKE with ESCAPE must be a text in quotes", help);
    };
    let escape = escape.map(|escape| escape_character(escape, pattern)).transpose()?;
    let (mut escaped, mut chars) = (String::new(), text.chars());
    while let Some(c) = chars.next() {
        let Some(escape) = escape.filter(|escape| c == *escape) else {
            escaped.extend((c == '\\').then_some('\\').into_iter().chain([c]));
            continue;
        };
        match chars.next() {
            Some(next) if next == escape || matches!(next, '%' | '_') => {
                escaped.extend(['\\', next]);
            }
            _ => {
                let help = format!("write {escape}{escape} for the character itself");
                return refused("what ESCAPE names must stand before %, _ or itself", &help);
            }
        }
    }
    Ok(string(&escaped))
}

/// The plain arguments of a call, if it has no others.
fn arguments(call: &Function) -> Option<Vec<Expr>> {
    let FunctionArguments::List(list) = &call.args else { return None };
    let plain = list.duplicate_treatment.is_none() && list.clauses.is_empty();
    let more = call.filter.is_some() || call.over.is_some() || !call.within_group.is_empty();
    if !plain || more || call.null_treatment.is_some() {
        return None;
    }
    list.args
        .iter()
        .map(|a| match a {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => Some(e.clone()),
            _ => None,
        })
        .collect()
}

// tidy: long function: one arm per function
fn rewrite_call(call: &Function) -> Result<Option<Expr>> {
    let Some(name) = crate::syntax::words::single_part(&call.name) else { return Ok(None) };
    let Some(args) = arguments(call) else { return Ok(None) };
    let rename = |new: &str, args: Vec<Expr>| Ok(Some(function(&name, new, args)));
    let upper = name.value.to_uppercase();
    if let (Some(field), [of]) = (field_of(&upper), &args[..]) {
        let extracted = extract(field.clone(), of.clone());
        let week_day = field == DateTimeField::Dow;
        return Ok(Some(if week_day { plus_one(extracted) } else { nested(extracted) }));
    }
    match (upper.as_str(), &args[..]) {
        ("MOD", [a, b]) => Ok(Some(binary(a, BinaryOperator::Modulo, b))),
        ("IF", [condition, then, otherwise]) => {
            Ok(Some(case(condition.clone(), then.clone(), otherwise.clone())))
        }
        // DataFusion's skips NULLs; a NULL anywhere makes Flink's NULL.
        ("CONCAT", [first, rest @ ..]) => {
            let text = cast(first.clone(), DataType::String(None));
            let concat = |a, b: &Expr| binary(&a, BinaryOperator::StringConcat, b);
            Ok(Some(rest.iter().fold(text, concat)))
        }
        // DataFusion's LOG(x) is to base 10, Flink's to base e.
        ("LOG", [_]) => rename("ln", args),
        ("CEILING", [_]) => rename("ceil", args),
        ("SIGN", [_]) => rename("signum", args),
        ("TRUNCATE", [_] | [_, _]) => rename("trunc", args),
        ("LOCATE", [needle, text, from @ ..]) if from.len() < 2 => {
            rename("strpos", [&[text.clone(), needle.clone()], from].concat())
        }
        ("TIMESTAMPDIFF" | "TIMESTAMPADD", [unit, a, b]) => {
            rename(&name.value.to_lowercase(), vec![time_unit(unit, &upper)?, a.clone(), b.clone()])
        }
        ("TIMESTAMPDIFF", _) => Err(few("TIMESTAMPDIFF", "a unit and two times", &name)
            .help("write TIMESTAMPDIFF(SECOND, from, to)")),
        ("TIMESTAMPADD", _) => Err(few("TIMESTAMPADD", "a unit, a number and a time", &name)
            .help("write TIMESTAMPADD(SECOND, 5, ts)")),
        ("DATEDIFF", [_, _, _]) => Err(SqlError::types("DATEDIFF takes two times: it counts days")
            .at(Span::new(name.span))
            .help("write TIMESTAMPDIFF(unit, from, to) for other units")),
        ("JSON_VALUE" | "JSON_EXISTS", _) => json_calls::rewrite(&name, call, &args),
        ("JSON_QUERY", _) => json_calls::rewrite_query(&name, call, &args),
        ("JSON_OBJECT" | "JSON_ARRAY", _) => Ok(json_calls::rewrite_made(&name, &args)),
        ("E", []) => rename("exp", vec![Expr::value(Value::Number("1".into(), false))]),
        ("SHA2", [_, bits]) => check_bits(bits).map(|()| None),
        ("CONVERT_TZ", [_, from, to]) => {
            check_zone(from).and_then(|()| check_zone(to)).map(|()| None)
        }
        ("STARTSWITH", [_, _]) => rename("starts_with", args),
        ("ENDSWITH", [_, _]) => rename("ends_with", args),
        ("TO_BASE64", [_]) => rename("encode", [&args[..], &[string("base64pad")]].concat()),
        ("FROM_BASE64", [_]) => {
            let bytes = function(&name, "decode", [&args[..], &[string("base64")]].concat());
            Ok(Some(cast(bytes, DataType::String(None))))
        }
        ("UCASE", [_]) => rename("upper", args),
        ("LCASE", [_]) => rename("lower", args),
        ("UNIX_TIMESTAMP", []) => {
            let now = function(&name, "now", vec![]);
            rename("to_unixtime", vec![now])
        }
        ("UNIX_TIMESTAMP", [_]) => rename("to_unixtime", args),
        ("UNIX_TIMESTAMP", [_, _]) => {
            Err(few("UNIX_TIMESTAMP", "one text or time, no format", &name)
                .help("write UNIX_TIMESTAMP(TO_TIMESTAMP(text, format))"))
        }
        ("DATE_FORMAT", [time, format]) => {
            rename("to_char", vec![time.clone(), java_pattern(format, "DATE_FORMAT", false)?])
        }
        ("FROM_UNIXTIME", [seconds]) => {
            rename("to_char", vec![of_seconds(&name, seconds), string("%Y-%m-%d %H:%M:%S")])
        }
        ("FROM_UNIXTIME", [seconds, format]) => {
            let pattern = java_pattern(format, "FROM_UNIXTIME", false)?;
            rename("to_char", vec![of_seconds(&name, seconds), pattern])
        }
        ("TRY_TO_TIMESTAMP" | "TRY_TO_TIMESTAMP_LTZ", [text]) => {
            let (kind, expr) = (CastKind::TryCast, Box::new(text.clone()));
            let data_type = if upper.ends_with("LTZ") { instant() } else { local_time() };
            Ok(Some(Expr::Cast { kind, expr, data_type, array: false, format: None }))
        }
        ("TO_TIMESTAMP" | "TRY_TO_TIMESTAMP", [text, format])
            if upper.starts_with("TRY") || !is_strftime(format) =>
        {
            Ok(Some(by_pattern(&name, &upper, text, format)?))
        }
        ("TO_TIMESTAMP_LTZ" | "TRY_TO_TIMESTAMP_LTZ", [text, format])
            if upper.starts_with("TRY") || string_literal(format).is_some() =>
        {
            Ok(Some(by_pattern(&name, &upper, text, format)?))
        }
        ("TO_DATE", [text]) => Ok(Some(cast(text.clone(), DataType::Date))),
        ("TO_DATE", [text, format]) if !is_strftime(format) => {
            let time = by_pattern(&name, "TO_TIMESTAMP", text, format)?;
            Ok(Some(cast(time, DataType::Date)))
        }
        ("TO_TIMESTAMP_LTZ", [_, digits]) if !matches!(number_of(digits), Some("0" | "3")) => {
            let message = "the second argument of TO_TIMESTAMP_LTZ must be 0 or 3";
            Err(SqlError::unsupported(message)
                .at(Span::new(digits.span()))
                .help("0 for seconds since 1970, 3 for milliseconds"))
        }
        _ => Ok(None),
    }
}

/// `CEIL(time TO unit)` or `FLOOR(time TO unit)`, as a call of `new`.
fn to_unit(of: &Expr, unit: &DateTimeField, call: &str, new: &str) -> Result<Expr> {
    const UNITS: &str = "\
        YEAR, QUARTER, MONTH, WEEK, DAY, HOUR, MINUTE, SECOND, MILLISECOND, MICROSECOND, \
        NANOSECOND";
    let unit = unit.to_string().to_uppercase();
    if !UNITS.split(", ").any(|known| known == unit) {
        return Err(SqlError::types(format!("{call} has no unit {unit}"))
            .help(format!("the units are {UNITS}")));
    }
    let name = Ident { span: of.span(), ..Ident::new("") };
    let unit = if unit == "WEEK" { SUNDAY_WEEK.to_string() } else { unit.to_lowercase() };
    Ok(function(&name, new, vec![string(&unit), of.clone()]))
}

/// A time of a text by a Java pattern. An instant without a zone in its pattern is a local time of
/// the session's zone.
fn by_pattern(name: &Ident, called: &str, text: &Expr, format: &Expr) -> Result<Expr> {
    let pattern = java_pattern(format, called, true)?;
    let instants = called.ends_with("LTZ");
    let zoned = string_literal(&pattern).is_some_and(has_zone);
    let of = usize::from(called.starts_with("TRY")) + if instants && zoned { 2 } else { 0 };
    let time = function(name, BY_PATTERN[of], vec![text.clone(), pattern]);
    Ok(if instants && !zoned { cast(time, instant()) } else { time })
}

/// `TIMESTAMP_LTZ(3)`.
fn instant() -> DataType {
    DataType::Custom(ObjectName::from(vec![Ident::new("TIMESTAMP_LTZ")]), vec!["3".into()])
}

/// The instant so many seconds after 1970.
fn of_seconds(name: &Ident, seconds: &Expr) -> Expr {
    let digits = Expr::value(Value::Number("0".into(), false));
    function(name, "to_timestamp_ltz", vec![seconds.clone(), digits])
}

/// `TIMESTAMP(3)`.
fn local_time() -> DataType {
    DataType::Timestamp(Some(3), TimezoneInfo::None)
}

/// Refuses a number of bits that no hash of SHA-2 has.
fn check_bits(bits: &Expr) -> Result<()> {
    let known = ["224", "256", "384", "512"];
    match number_of(bits).filter(|number| !known.contains(number)) {
        None => Ok(()),
        Some(number) => Err(SqlError::types(format!("SHA2 has no {number} bits"))
            .at(Span::new(bits.span()))
            .help("write 224, 256, 384 or 512")),
    }
}

/// Refuses what is written as a time zone and is none.
fn check_zone(zone: &Expr) -> Result<()> {
    let unknown = string_literal(zone).filter(|name| Zone::from_str(name).is_err());
    unknown.map_or(Ok(()), |name| {
        Err(SqlError::types(format!("there is no time zone '{name}'"))
            .at(Span::new(zone.span()))
            .help("write for example 'Europe/Zurich', 'UTC' or '+02:00'"))
    })
}

/// A call has too few or too many arguments.
fn few(name: &str, takes: &str, place: &Ident) -> SqlError {
    SqlError::types(format!("{name} takes {takes}")).at(Span::new(place.span))
}

/// The unit of a call, which is a word, as a text.
fn time_unit(unit: &Expr, call: &str) -> Result<Expr> {
    let word = match unit {
        Expr::Identifier(word) => Some(word.value.as_str()),
        other => string_literal(other),
    };
    match word.filter(|word| time_step(word).is_some()) {
        Some(word) => Ok(string(&word.to_uppercase())),
        None => Err(SqlError::types(format!("the first argument of {call} is a unit of time"))
            .at(Span::new(unit.span()))
            .help(format!("the units are {}", unit_names().join(", ")))),
    }
}

/// `YEAR(x)` is `EXTRACT(YEAR FROM x)`.
fn field_of(name: &str) -> Option<DateTimeField> {
    Some(match name {
        "YEAR" => DateTimeField::Year,
        "QUARTER" => DateTimeField::Quarter,
        "MONTH" => DateTimeField::Month,
        "WEEK" => DateTimeField::Week(None),
        "DAYOFMONTH" => DateTimeField::Day,
        "DAYOFYEAR" => DateTimeField::Doy,
        "DAYOFWEEK" => DateTimeField::Dow,
        "HOUR" => DateTimeField::Hour,
        "MINUTE" => DateTimeField::Minute,
        "SECOND" => DateTimeField::Second,
        _ => return None,
    })
}

/// A literal pattern in Java's letters, as DataFusion's functions take it.
fn java_pattern(format: &Expr, function: &str, zones: bool) -> Result<Expr> {
    let Some(pattern) = string_literal(format) else {
        let message = format!("the pattern of {function} must be a text in quotes");
        return Err(SqlError::unsupported(message)
            .at(Span::new(format.span()))
            .help("write for example 'yyyy-MM-dd HH:mm:ss'"));
    };
    let pattern = to_strftime(pattern, zones).map_err(|e| e.at(Span::new(format.span())))?;
    Ok(string(&pattern))
}

fn is_strftime(format: &Expr) -> bool {
    string_literal(format).is_some_and(|f| f.contains('%'))
}

fn string_literal(expr: &Expr) -> Option<&str> {
    match value_of(expr)? {
        Value::SingleQuotedString(text) => Some(text),
        _ => None,
    }
}

fn nested(expr: Expr) -> Expr {
    Expr::Nested(Box::new(expr))
}

fn plus_one(expr: Expr) -> Expr {
    binary(&expr, BinaryOperator::Plus, &Expr::value(Value::Number("1".into(), false)))
}

fn binary(left: &Expr, op: BinaryOperator, right: &Expr) -> Expr {
    let (left, right) = (nested(left.clone()), nested(right.clone()));
    nested(Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) })
}

fn extract(field: DateTimeField, of: Expr) -> Expr {
    Expr::Extract { field, syntax: ExtractSyntax::From, expr: Box::new(of) }
}

fn cast(expr: Expr, data_type: DataType) -> Expr {
    let expr = Box::new(expr);
    Expr::Cast { kind: CastKind::Cast, expr, data_type, array: false, format: None }
}

fn case(condition: Expr, then: Expr, otherwise: Expr) -> Expr {
    Expr::Case {
        case_token: helpers::attached_token::AttachedToken::empty(),
        end_token: helpers::attached_token::AttachedToken::empty(),
        operand: None,
        conditions: vec![CaseWhen { condition, result: then }],
        else_result: Some(Box::new(otherwise)),
    }
}
