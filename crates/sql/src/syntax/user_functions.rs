//! Functions that a script declares: `CREATE FUNCTION name (x TYPE, …) RETURNS TYPE RETURN
//! expression`. A call is replaced by the expression before anything else looks at the query.

use datafusion_sql::sqlparser::ast::{
    CastKind, DataType, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectNamePart,
};
use datafusion_sql::{sqlparser::parser::ParserError, sqlparser::tokenizer::Span as Extent};

use crate::syntax::prelude::*;
use crate::syntax::types::arrow_type;
use crate::syntax::words::{if_not_exists, single_name, single_part};

/// How a function is declared.
const FORM: &str = "write CREATE FUNCTION name (x STRING, …) RETURNS BIGINT RETURN expression";

/// `CREATE FUNCTION`, parsed.
#[derive(Debug, Clone)]
pub(crate) struct CreateFunction {
    pub(crate) name: Ident,
    pub(crate) or_replace: bool,
    pub(crate) if_not_exists: bool,
    pub(crate) parameters: Vec<(Ident, PlacedType)>,
    pub(crate) returns: PlacedType,
    pub(crate) body: Expr,
}

/// A type, and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct PlacedType {
    pub(crate) of: DataType,
    pub(crate) span: Option<Span>,
}

impl PlacedType {
    fn parse(parser: &mut Parser<'_>) -> std::result::Result<PlacedType, ParserError> {
        let from = parser.peek_token().span;
        let of = parser.parse_data_type()?;
        Ok(PlacedType { of, span: Span::new(from.union(&parser.get_current_token().span)) })
    }

    fn arrow_type(&self) -> Result<arrow::datatypes::DataType> {
        arrow_type(&self.of).map_err(|error| error.at(self.span))
    }
}

/// The functions that are declared, by name in small letters.
pub(crate) type UserFunctions = BTreeMap<String, Arc<UserFunction>>;

/// A declared function.
#[derive(Debug)]
pub(crate) struct UserFunction {
    parameters: Vec<(String, DataType)>,
    returns: DataType,
    body: Expr,
}

impl UserFunction {
    /// A call, with the names and types of the parameters.
    pub(crate) fn call(&self, name: &str) -> String {
        let parameters = self.parameters.iter().map(|(name, of)| format!("{name} {of}"));
        format!("{name}({})", parameters.collect::<Vec<_>>().join(", "))
    }
}

/// Parses the text after `CREATE [OR REPLACE] FUNCTION`.
pub(crate) fn parse_create_function(
    parser: &mut Parser<'_>,
    or_replace: bool,
) -> Result<CreateFunction> {
    let if_not_exists = if_not_exists(parser)?;
    let name = single_name(parser)?;
    let next = parser.peek_token();
    if parser.parse_keyword(Keyword::AS) {
        return Err(SqlError::unsupported("functions of Java and Python do not run here")
            .at(Span::new(next.span))
            .help(format!(
                "write it in SQL; one that counts a letter in a text, for example, is\nCREATE \
                 FUNCTION {name} (s STRING, c STRING) RETURNS BIGINT\nRETURN CHAR_LENGTH(s) - \
                 CHAR_LENGTH(REPLACE(s, c, ''))"
            )));
    }
    let mut parameters = Vec::new();
    parser.expect_token(&Token::LParen)?;
    if !parser.consume_token(&Token::RParen) {
        parameters =
            parser.parse_comma_separated(|p| Ok((p.parse_identifier()?, PlacedType::parse(p)?)))?;
        parser.expect_token(&Token::RParen)?;
    }
    parser.expect_keyword(Keyword::RETURNS)?;
    let returns = PlacedType::parse(parser)?;
    parser.expect_keyword(Keyword::RETURN)?;
    let body = parser.parse_expr()?;
    Ok(CreateFunction { name, or_replace, if_not_exists, parameters, returns, body })
}

impl CreateFunction {
    /// The types of its parameters, as fields.
    ///
    /// # Errors
    ///
    /// If there is no such type, also that of its result.
    pub(crate) fn fields(&self) -> Result<Vec<Field>> {
        let field = |(name, typed): &(Ident, PlacedType)| {
            typed.arrow_type().map(|of| Field::new(&name.value, of, true))
        };
        let fields = self.parameters.iter().map(field).collect::<Result<_>>()?;
        self.returns.arrow_type().map(|_| fields)
    }
}

impl UserFunction {
    /// The declared function, with a body over its parameters. Functions of several rows are known
    /// by their names in small letters.
    ///
    /// # Errors
    ///
    /// If the body is no expression of the parameters.
    pub(crate) fn new(
        create: &CreateFunction,
        declared: &UserFunctions,
        is_aggregate: &dyn Fn(&str) -> bool,
    ) -> Result<UserFunction> {
        for (place, (parameter, _)) in create.parameters.iter().enumerate() {
            if create.parameters[..place].iter().any(|(other, _)| other.value == parameter.value) {
                let message = format!("there are two parameters '{}'", parameter.value);
                return Err(SqlError::name(message).at(Span::new(parameter.span)));
            }
        }
        let mut body = create.body.clone();
        let mut check = Check { create, is_aggregate };
        if let Break(error) = body.walk_mut(&mut check) {
            return Err(error);
        }
        // Written out now, so a function cannot come to use itself.
        if let Break(error) = body.walk_mut(&mut Expansion(declared)) {
            return Err(error);
        }
        let named = |(name, typed): &(Ident, PlacedType)| (name.value.clone(), typed.of.clone());
        let parameters = create.parameters.iter().map(named).collect();
        Ok(UserFunction { parameters, returns: create.returns.of.clone(), body })
    }

    /// Expression of the parameters that the function computes.
    pub(crate) fn body(&self) -> &Expr {
        &self.body
    }

    /// The stored form, without places: messages are about the query with the call.
    pub(crate) fn unplaced(mut self) -> UserFunction {
        let _ = self.body.walk_mut(&mut Unplaced);
        self
    }

    /// The body, with arguments for its parameters.
    pub(crate) fn of(&self, arguments: &[Expr]) -> Expr {
        struct Parameters<'a>(&'a UserFunction, &'a [Expr]);
        impl VisitorMut for Parameters<'_> {
            type Break = ();
            fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
                let Expr::Identifier(name) = expr else { return Continue(()) };
                let mut parameters = self.0.parameters.iter().zip(self.1);
                if let Some(((_, of), argument)) =
                    parameters.find(|((parameter, _), _)| *parameter == name.value)
                {
                    *expr = cast(argument.clone(), of);
                }
                Continue(())
            }
        }
        let mut body = self.body.clone();
        // Bottom up, so what an argument names is not taken for a parameter.
        let _ = body.walk_mut(&mut Parameters(self, arguments));
        cast(body, &self.returns)
    }
}

/// Writes out the calls of declared functions in a query.
pub(crate) fn expand(mut query: Query, declared: &UserFunctions) -> Result<Query> {
    if declared.is_empty() {
        return Ok(query);
    }
    query.walk_mut(&mut Expansion(declared)).break_value().map_or(Ok(query), Err)
}

fn cast(expr: Expr, to: &DataType) -> Expr {
    let (kind, expr) = (CastKind::Cast, Box::new(Expr::Nested(Box::new(expr))));
    let cast = Expr::Cast { kind, expr, data_type: to.clone(), array: false, format: None };
    Expr::Nested(Box::new(cast))
}

/// Replaces calls by the bodies of the functions.
struct Expansion<'a>(&'a UserFunctions);

impl Expansion<'_> {
    fn function(&self, expr: &Expr) -> Option<&Arc<UserFunction>> {
        let Expr::Function(call) = expr else { return None };
        self.0.get(&single_part(&call.name)?.value.to_lowercase())
    }

    /// Whether a call stands in an expression.
    fn calls(&self, expr: &Expr) -> bool {
        struct Calls<'a>(&'a Expansion<'a>);
        impl Visitor for Calls<'_> {
            type Break = ();
            fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
                match self.0.function(expr) {
                    Some(_) => Break(()),
                    None => Continue(()),
                }
            }
        }
        expr.walk(&mut Calls(self)).is_break()
    }
}

impl VisitorMut for Expansion<'_> {
    type Break = SqlError;

    /// A column without a name is called as the call was written.
    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) = item
                && self.calls(expr)
            {
                let name = expr.to_string();
                let alias = Ident { value: name, quote_style: Some('`'), span: expr.span() };
                *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
            }
        }
        Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        let Some(function) = self.function(expr).cloned() else {
            return Continue(());
        };
        let Expr::Function(call) = &*expr else { return Continue(()) };
        let span = Span::new(call.name.span());
        let Some(arguments) = plain_arguments(call) else {
            let message = format!("{} takes nothing but its arguments", call.name);
            return Break(SqlError::unsupported(message).at(span));
        };
        let wanted = function.parameters.len();
        if arguments.len() != wanted {
            let found = arguments.len();
            let message = format!("{} takes {wanted} arguments, not {found}", call.name);
            return Break(SqlError::types(message).at(span));
        }
        *expr = function.of(&arguments);
        Continue(())
    }
}

/// The arguments of a call that has nothing else.
fn plain_arguments(call: &datafusion_sql::sqlparser::ast::Function) -> Option<Vec<Expr>> {
    let more = call.filter.is_some() || call.over.is_some() || !call.within_group.is_empty();
    let list = match &call.args {
        FunctionArguments::List(list) => list,
        _ => return None,
    };
    if more || list.duplicate_treatment.is_some() || !list.clauses.is_empty() {
        return None;
    }
    let plain = list.args.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    });
    plain.collect()
}

/// Looks for what cannot stand in a body.
struct Check<'a> {
    create: &'a CreateFunction,
    is_aggregate: &'a dyn Fn(&str) -> bool,
}

impl VisitorMut for Check<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<SqlError> {
        let message = "the body of a function is an expression without queries";
        Break(SqlError::unsupported(message).help(FORM))
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        let error = match expr {
            Expr::Identifier(name) => {
                let names = self.create.parameters.iter().map(|(name, _)| name.value.as_str());
                if names.clone().any(|parameter| parameter == name.value) {
                    return Continue(());
                }
                let names: Vec<&str> = names.collect();
                let message = format!("'{}' is no parameter of the function", name.value);
                SqlError::name(message).help(format!("its parameters are: {}", names.join(", ")))
            }
            Expr::CompoundIdentifier(parts) => {
                let root = parts.first().map_or("", |part| part.value.as_str());
                let message = format!("'{root}.…' is no parameter of the function");
                SqlError::name(message).help("give the function the field as an argument")
            }
            Expr::Function(call) => {
                let name = call.name.to_string();
                if !(self.is_aggregate)(&name.to_lowercase()) && call.over.is_none() {
                    return Continue(());
                }
                let message = format!("{name} is of several rows, a function of one");
                let error = SqlError::unsupported(message).at(Span::new(call.name.span()));
                return Break(error.help("call it where the function is called"));
            }
            _ => return Continue(()),
        };
        Break(error.at(Span::new(expr.span())))
    }
}

/// Forgets where parts of a body stand.
struct Unplaced;

impl VisitorMut for Unplaced {
    type Break = ();
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(name) => name.span = Extent::empty(),
            Expr::Value(value) => value.span = Extent::empty(),
            Expr::Function(call) => {
                for part in &mut call.name.0 {
                    if let ObjectNamePart::Identifier(name) = part {
                        name.span = Extent::empty();
                    }
                }
            }
            _ => {}
        }
        Continue(())
    }
}
