//! Names that most files use: those of DataFusion, arrow and the parser, and errors with a place.

pub(crate) use crate::syntax::{
    error::{ErrorKind, Place, Result, Source, Span, SqlError},
    types::sql_type_name,
    walk::{Nodes, Walk, WalkMut},
};
pub(crate) use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, StringArray},
    compute::cast,
    datatypes::{DataType, Field, FieldRef, Int64Type, Schema, SchemaRef, TimeUnit},
};
pub(crate) use datafusion_common::{
    Column, DFSchema, DataFusionError, Result as DfResult, ScalarValue, exec_datafusion_err,
    exec_err, internal_err, plan_err,
    tree_node::{Transformed, TreeNodeRecursion},
};
pub(crate) use datafusion_expr::{
    Between, BinaryExpr, Case, Cast, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator,
    ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TryCast, Volatility,
    expr::InList,
    lit,
    simplify::{ExprSimplifyResult, SimplifyContext},
};
pub(crate) use datafusion_physical_expr::PhysicalExpr;
pub(crate) use datafusion_sql::sqlparser::{
    ast::{
        Expr as SqlExpr, Ident, ObjectName, Query, Select, SelectItem, SetExpr, Spanned,
        TableFactor, Visitor, VisitorMut,
    },
    keywords::Keyword,
    parser::Parser,
    tokenizer::Token,
};
pub(crate) use millstream_contract::{nested::is_nested, settings::closest};
pub(crate) use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fmt,
    hash::{Hash, Hasher},
    ops::ControlFlow::{self, Break, Continue},
    sync::{Arc, LazyLock},
};
