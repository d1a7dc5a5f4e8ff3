//! Parsing `CREATE TABLE` in Flink's form: physical and computed columns, a watermark, a primary
//! key, connector options.

use datafusion_sql::{sqlparser::ast::Expr, sqlparser::parser::IsOptional, sqlparser::tokenizer};

use crate::syntax::like::{Like, parse_like};
use crate::syntax::prelude::*;
use crate::syntax::type_grammar::{TypeDef, parse_type};
use crate::syntax::words::{if_not_exists, is_word, single_name};

/// A parsed `CREATE TABLE`.
#[derive(Debug, Clone)]
pub(crate) struct CreateTable {
    pub(crate) name: Ident,
    pub(crate) if_not_exists: bool,
    pub(crate) columns: Vec<ColumnDef>,
    pub(crate) watermark: Option<WatermarkDef>,
    pub(crate) partitioned_by: Vec<Ident>,
    /// PRIMARY KEY: of several rows with one key, the later is a new version of the earlier.
    pub(crate) primary_key: Vec<Ident>,
    pub(crate) options: Vec<OptionDef>,
    /// The LIKE clause: the table that supplies the rest.
    pub(crate) like: Option<Like>,
}

#[derive(Debug, Clone)]
pub(crate) struct ColumnDef {
    pub(crate) name: Ident,
    pub(crate) kind: ColumnKind,
    /// The text that the places are of, if it is not the statement's own.
    pub(crate) source: Option<Arc<Source>>,
    /// Of the type or the expression.
    pub(crate) span: Option<Span>,
}

#[derive(Debug, Clone)]
pub(crate) enum ColumnKind {
    Physical { type_def: TypeDef, nullable: bool },
    Computed(Box<Expr>),
    Metadata { type_def: TypeDef, nullable: bool, from: Option<MetadataKey>, is_virtual: bool },
}

/// `FROM 'key'`.
#[derive(Debug, Clone)]
pub(crate) struct MetadataKey {
    pub(crate) key: String,
    pub(crate) span: Option<Span>,
}

/// `WATERMARK FOR column AS expr`.
#[derive(Debug, Clone)]
pub(crate) struct WatermarkDef {
    pub(crate) column: Ident,
    pub(crate) expr: Box<Expr>,
    pub(crate) span: Option<Span>,
    /// As [`ColumnDef::source`].
    pub(crate) source: Option<Arc<Source>>,
}

/// `'key' = 'value'`.
#[derive(Debug, Clone)]
pub(crate) struct OptionDef {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) key_span: Option<Span>,
    pub(crate) value_span: Option<Span>,
}

impl CreateTable {
    /// Every expression in it.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Expr> {
        let computed = self.columns.iter().filter_map(|c| match &c.kind {
            ColumnKind::Computed(expr) => Some(&**expr),
            ColumnKind::Physical { .. } | ColumnKind::Metadata { .. } => None,
        });
        computed.chain(self.watermark.iter().map(|w| &*w.expr))
    }
}

/// Parses what follows `CREATE [TEMPORARY] TABLE`.
pub(crate) fn parse_create_table(parser: &mut Parser<'_>) -> Result<CreateTable> {
    let if_not_exists = if_not_exists(parser)?;
    let name = single_name(parser)?;
    let mut table = CreateTable {
        name,
        if_not_exists,
        columns: Vec::new(),
        watermark: None,
        partitioned_by: Vec::new(),
        primary_key: Vec::new(),
        options: Vec::new(),
        like: None,
    };
    refuse_as(parser, &table.name)?;
    let next = parser.peek_token();
    let is = |keyword| matches!(&next.token, Token::Word(w) if w.keyword == keyword);
    // A table with LIKE needs no columns of its own.
    if !is(Keyword::LIKE) && !is(Keyword::WITH) {
        parser.expect_token(&Token::LParen)?;
        parse_elements(parser, &mut table)?;
    }
    if parser.parse_keyword(Keyword::COMMENT) {
        parser.parse_literal_string()?;
    }
    let next = parser.peek_token();
    if is_word(&next.token, "DISTRIBUTED") {
        return Err(SqlError::unsupported(format!("{next} BY does not run here"))
            .at(Span::new(next.span))
            .help("leave it out: state is partitioned by the key of each query"));
    }
    if is_word(&next.token, "PARTITIONED") {
        parser.next_token();
        table.partitioned_by = parse_partitions(parser)?;
    }
    if parser.parse_keyword(Keyword::WITH) {
        parser.expect_token(&Token::LParen)?;
        while !parser.consume_token(&Token::RParen) {
            table.options.push(parse_option(parser)?);
            if !parser.consume_token(&Token::Comma) {
                parser.expect_token(&Token::RParen)?;
                break;
            }
        }
    }
    refuse_as(parser, &table.name)?;
    table.like = parse_like(parser)?;
    if table.columns.is_empty() && table.like.is_none() {
        let message = "a table needs columns, or LIKE and a table that has them";
        return Err(SqlError::syntax(message)
            .at(Span::new(table.name.span))
            .help("write CREATE TABLE name (column TYPE, …) WITH (…)"));
    }
    Ok(table)
}

/// Refuses `CREATE TABLE … AS SELECT`.
fn refuse_as(parser: &Parser<'_>, name: &Ident) -> Result<()> {
    let next = parser.peek_token();
    if !is_word(&next.token, "AS") {
        return Ok(());
    }
    Err(SqlError::unsupported("CREATE TABLE … AS does not run here").at(Span::new(next.span)).help(
        format!(
            "to give the query a name, write CREATE VIEW {name} AS SELECT …; to write its rows, \
             declare the columns:\nCREATE TABLE {name} (column TYPE, …) WITH (…); INSERT INTO \
             {name} SELECT …"
        ),
    ))
}

/// Parses what follows `PARTITIONED`.
fn parse_partitions(parser: &mut Parser<'_>) -> Result<Vec<Ident>> {
    let help = "write PARTITIONED BY (column, …)";
    parser.expect_keyword(Keyword::BY).map_err(|e| SqlError::from(e).help(help))?;
    parser
        .parse_parenthesized_column_list(IsOptional::Mandatory, false)
        .map_err(|e| SqlError::from(e).help(help))
}

/// Parses the elements in brackets after the name, and the closing bracket.
fn parse_elements(parser: &mut Parser<'_>, table: &mut CreateTable) -> Result<()> {
    loop {
        parse_element(parser, table)?;
        if parser.consume_token(&Token::RParen) {
            return Ok(());
        }
        let next = parser.next_token();
        if next.token != Token::Comma {
            return Err(SqlError::syntax(format!("expected , or ) after a column, found {next}"))
                .at(Span::new(next.span)));
        }
        if parser.consume_token(&Token::RParen) {
            return Ok(());
        }
    }
}

fn parse_option(parser: &mut Parser<'_>) -> Result<OptionDef> {
    let key_token = parser.peek_token();
    let key = match &key_token.token {
        // The names that Flink had before 1.11.
        Token::SingleQuotedString(key) => match key.as_str() {
            "connector.type" => "connector".into(),
            "connector.path" => "path".into(),
            "format.type" => "format".into(),
            _ => key.clone(),
        },
        _ => {
            return Err(SqlError::syntax(format!("expected an option's name, found {key_token}"))
                .at(Span::new(key_token.span))
                .help("write WITH ('key' = 'value', …)"));
        }
    };
    parser.next_token();
    parser.expect_token(&Token::Eq)?;
    let value_token = parser.peek_token();
    let value = match &value_token.token {
        Token::SingleQuotedString(value) => value.clone(),
        _ => {
            let message = format!("expected a value in quotes, found {value_token}");
            return Err(SqlError::syntax(message)
                .at(Span::new(value_token.span))
                .help(format!("write '{key}' = 'value'")));
        }
    };
    parser.next_token();
    let (key_span, value_span) = (Span::new(key_token.span), Span::new(value_token.span));
    Ok(OptionDef { key, value, key_span, value_span })
}

// tidy: long function: one branch per kind of element
fn parse_element(parser: &mut Parser<'_>, table: &mut CreateTable) -> Result<()> {
    let start = parser.peek_token();
    let next = parser.peek_nth_token(1);
    let (first, second) = match (&start.token, &next.token) {
        (Token::Word(a), Token::Word(b)) if a.quote_style.is_none() => (a.keyword, b.keyword),
        (Token::Word(a), Token::LParen) if a.quote_style.is_none() => {
            (a.keyword, Keyword::NoKeyword)
        }
        _ => (Keyword::NoKeyword, Keyword::NoKeyword),
    };
    if is_word(&start.token, "WATERMARK") && second == Keyword::FOR {
        let watermark = parse_watermark(parser)?;
        if table.watermark.is_some() {
            return Err(SqlError::syntax("a table has one watermark at most")
                .at(watermark.span)
                .help("leave one of them out"));
        }
        table.watermark = Some(watermark);
        return Ok(());
    }
    // `WATERMARK ts AS …`: no column has a name, a type and AS.
    let third = parser.peek_nth_token(2);
    if is_word(&start.token, "WATERMARK") && is_word(&third.token, "AS") {
        return Err(SqlError::syntax(format!("expected FOR after WATERMARK, found {next}"))
            .at(Span::new(next.span))
            .help(format!("write WATERMARK FOR {next} AS {next} - INTERVAL '5' SECOND")));
    }
    match (first, second) {
        (Keyword::PRIMARY, Keyword::KEY) => return parse_primary_key(parser, table),
        (Keyword::CONSTRAINT, _)
            if is_word(&third.token, "PRIMARY") && !is_word(&next.token, "PRIMARY") =>
        {
            parser.next_token();
            parser.next_token();
            return parse_primary_key(parser, table);
        }
        (Keyword::UNIQUE, _) | (Keyword::FOREIGN, Keyword::KEY) | (Keyword::CONSTRAINT, _) => {
            let message = "constraints other than PRIMARY KEY do not run here";
            return Err(SqlError::unsupported(message)
                .at(Span::new(start.span.union(&next.span)))
                .help("leave this line out: it would not change what a query computes"));
        }
        _ => {}
    }
    let name = parser.parse_identifier()?;
    let from = parser.peek_token().span;
    if parser.parse_keyword(Keyword::AS) {
        let from = parser.peek_token().span;
        let expr = Box::new(parser.parse_expr()?);
        let span = Span::new(from.union(&parser.get_current_token().span));
        if parser.parse_keyword(Keyword::COMMENT) {
            parser.parse_literal_string()?;
        }
        let kind = ColumnKind::Computed(expr);
        table.columns.push(ColumnDef { name, kind, source: None, span });
        return Ok(());
    }
    let type_def = parse_type(parser)?;
    let span = Span::new(from.union(&parser.get_current_token().span));
    let mut nullable = true;
    let mut metadata = None;
    loop {
        let token = parser.peek_token();
        let Token::Word(word) = &token.token else { break };
        match word.keyword {
            Keyword::NOT => {
                parser.next_token();
                parser.expect_keyword(Keyword::NULL)?;
                nullable = false;
            }
            Keyword::NULL => {
                parser.next_token();
            }
            Keyword::COMMENT => {
                parser.next_token();
                parser.parse_literal_string()?;
            }
            Keyword::METADATA if metadata.is_none() => metadata = Some(parse_metadata(parser)?),
            Keyword::PRIMARY => {
                let key = vec![name.clone()];
                parser.next_token();
                parser.expect_keyword(Keyword::KEY)?;
                not_enforced(parser, table, key, token.span)?;
            }
            Keyword::UNIQUE | Keyword::REFERENCES | Keyword::CONSTRAINT => {
                let message = "constraints other than PRIMARY KEY do not run here";
                return Err(SqlError::unsupported(message)
                    .at(Span::new(token.span))
                    .help("leave it out: it would not change what a query computes"));
            }
            _ => {
                let message =
                    format!("expected NOT NULL, a comma or ) after a column's type, found {token}");
                return Err(SqlError::syntax(message).at(Span::new(token.span)));
            }
        }
    }
    let kind = match metadata {
        Some((from, is_virtual)) => ColumnKind::Metadata { type_def, nullable, from, is_virtual },
        None => ColumnKind::Physical { type_def, nullable },
    };
    table.columns.push(ColumnDef { name, kind, source: None, span });
    Ok(())
}

/// Parses `PRIMARY KEY (column, …) NOT ENFORCED`.
fn parse_primary_key(parser: &mut Parser<'_>, table: &mut CreateTable) -> Result<()> {
    let from = parser.peek_token().span;
    parser.expect_keyword(Keyword::PRIMARY)?;
    parser.expect_keyword(Keyword::KEY)?;
    let columns = parser
        .parse_parenthesized_column_list(IsOptional::Mandatory, false)
        .map_err(|e| SqlError::from(e).help("write PRIMARY KEY (column, …) NOT ENFORCED"))?;
    not_enforced(parser, table, columns, from)
}

/// Parses the end of a primary key, which begins at `from`.
fn not_enforced(
    parser: &mut Parser<'_>,
    table: &mut CreateTable,
    columns: Vec<Ident>,
    from: tokenizer::Span,
) -> Result<()> {
    let span = Span::new(from.union(&parser.get_current_token().span));
    let next = [parser.peek_token(), parser.peek_nth_token(1)];
    if !is_word(&next[0].token, "NOT") || !is_word(&next[1].token, "ENFORCED") {
        let message = "a PRIMARY KEY is not checked here, and must say so";
        return Err(SqlError::unsupported(message).at(span).help("write NOT ENFORCED behind it"));
    }
    parser.next_token();
    parser.next_token();
    if !table.primary_key.is_empty() {
        let error = SqlError::syntax("a table has one PRIMARY KEY at most").at(span);
        return Err(error.help("leave one of them out"));
    }
    table.primary_key = columns;
    Ok(())
}

/// Parses `METADATA [FROM 'key'] [VIRTUAL]`: the key, and whether it is VIRTUAL.
fn parse_metadata(parser: &mut Parser<'_>) -> Result<(Option<MetadataKey>, bool)> {
    parser.expect_keyword(Keyword::METADATA)?;
    let mut from = None;
    if parser.parse_keyword(Keyword::FROM) {
        let token = parser.next_token();
        let Token::SingleQuotedString(key) = &token.token else {
            return Err(SqlError::syntax(format!("expected a key in quotes, found {token}"))
                .at(Span::new(token.span))
                .help("write METADATA FROM 'file.modified'"));
        };
        from = Some(MetadataKey { key: key.clone(), span: Span::new(token.span) });
    }
    let is_virtual = is_word(&parser.peek_token().token, "VIRTUAL");
    if is_virtual {
        parser.next_token();
    }
    Ok((from, is_virtual))
}

fn parse_watermark(parser: &mut Parser<'_>) -> Result<WatermarkDef> {
    let from = parser.peek_token().span;
    parser.next_token(); // WATERMARK, which is no keyword of sqlparser's
    parser.expect_keyword(Keyword::FOR)?;
    let column = parser.parse_identifier()?;
    parser.expect_keyword(Keyword::AS).map_err(|e| {
        let help = format!("write WATERMARK FOR {column} AS {column} - INTERVAL '5' SECOND");
        SqlError::from(e).help(help)
    })?;
    let expr = Box::new(parser.parse_expr()?);
    let span = Span::new(from.union(&parser.get_current_token().span));
    Ok(WatermarkDef { column, expr, span, source: None })
}
