//! Walks over trees: those of the syntax, and those of plans and expressions.
//!
//! The walks of the libraries are generic and compiled anew for every kind of visitor and every
//! closure: the syntax alone has six hundred functions. Ours hand a pointer to the visitor down, so
//! each walk is compiled once. Generic walks had been half of this crate's code.

use std::ops::ControlFlow;

use datafusion_common::Result;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_sql::sqlparser::ast::{
    Expr, ObjectName, Query, Select, Statement, TableFactor, ValueWithSpan, Visit, VisitMut,
    Visitor, VisitorMut,
};

/// A visitor of any type, with its reason for breaking off.
struct KeptVisitor<'v, V, B> {
    visitor: &'v mut V,
    broke: Option<B>,
}

impl<V, B> KeptVisitor<'_, V, B> {
    fn keep(&mut self, flow: ControlFlow<B>) -> ControlFlow<()> {
        match flow {
            ControlFlow::Continue(()) => ControlFlow::Continue(()),
            ControlFlow::Break(with) => {
                self.broke = Some(with);
                ControlFlow::Break(())
            }
        }
    }

    fn end(self) -> ControlFlow<B> {
        self.broke.map_or(ControlFlow::Continue(()), ControlFlow::Break)
    }
}

/// Hands each part of a tree through a pointer to a visitor of any type.
macro_rules! through_a_pointer {
    ($erased:ident, $pointer:ident, $visitor:ident: $($visit:ident($part:ty)),* $(,)?) => {
        trait $erased {
            $(fn $visit(&mut self, part: $part) -> ControlFlow<()>;)*
        }

        impl<V: $visitor> $erased for KeptVisitor<'_, V, V::Break> {
            $(fn $visit(&mut self, part: $part) -> ControlFlow<()> {
                let flow = self.visitor.$visit(part);
                self.keep(flow)
            })*
        }

        struct $pointer<'a>(&'a mut dyn $erased);

        impl $visitor for $pointer<'_> {
            type Break = ();
            $(fn $visit(&mut self, part: $part) -> ControlFlow<()> {
                self.0.$visit(part)
            })*
        }
    };
}

through_a_pointer!(
    Looks, Pointer, Visitor:
    pre_visit_query(&Query),
    post_visit_query(&Query),
    pre_visit_select(&Select),
    post_visit_select(&Select),
    pre_visit_relation(&ObjectName),
    post_visit_relation(&ObjectName),
    pre_visit_table_factor(&TableFactor),
    post_visit_table_factor(&TableFactor),
    pre_visit_expr(&Expr),
    post_visit_expr(&Expr),
    pre_visit_statement(&Statement),
    post_visit_statement(&Statement),
    pre_visit_value(&ValueWithSpan),
    post_visit_value(&ValueWithSpan),
);

through_a_pointer!(
    Changes, PointerMut, VisitorMut:
    pre_visit_query(&mut Query),
    post_visit_query(&mut Query),
    pre_visit_select(&mut Select),
    post_visit_select(&mut Select),
    pre_visit_relation(&mut ObjectName),
    post_visit_relation(&mut ObjectName),
    pre_visit_table_factor(&mut TableFactor),
    post_visit_table_factor(&mut TableFactor),
    pre_visit_expr(&mut Expr),
    post_visit_expr(&mut Expr),
    pre_visit_statement(&mut Statement),
    post_visit_statement(&mut Statement),
    pre_visit_value(&mut ValueWithSpan),
    post_visit_value(&mut ValueWithSpan),
);

/// Walks over a piece of syntax.
pub(crate) trait Walk: Visit {
    /// As [`Visit::visit`].
    fn walk<V: Visitor>(&self, visitor: &mut V) -> ControlFlow<V::Break> {
        let mut kept = KeptVisitor { visitor, broke: None };
        let _ = self.visit(&mut Pointer(&mut kept));
        kept.end()
    }

    /// Looks at every expression, from outside in.
    fn each_expr<B>(&self, look: impl FnMut(&Expr) -> ControlFlow<B>) -> ControlFlow<B> {
        self.walk(&mut Exprs(look))
    }

    /// Looks at the name of every table.
    fn each_relation<B>(&self, look: impl FnMut(&ObjectName) -> ControlFlow<B>) -> ControlFlow<B> {
        self.walk(&mut Relations(look))
    }
}

impl<T: Visit> Walk for T {}

/// Walks over a piece of syntax and changes it.
pub(crate) trait WalkMut: VisitMut {
    /// As [`VisitMut::visit`].
    fn walk_mut<V: VisitorMut>(&mut self, visitor: &mut V) -> ControlFlow<V::Break> {
        let mut kept = KeptVisitor { visitor, broke: None };
        let _ = self.visit(&mut PointerMut(&mut kept));
        kept.end()
    }

    /// Changes every expression, from inside out.
    fn each_expr_mut<B>(
        &mut self,
        change: impl FnMut(&mut Expr) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.walk_mut(&mut Exprs(change))
    }
}

impl<T: VisitMut> WalkMut for T {}

struct Exprs<F>(F);

impl<B, F: FnMut(&Expr) -> ControlFlow<B>> Visitor for Exprs<F> {
    type Break = B;
    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<B> {
        self.0(expr)
    }
}

impl<B, F: FnMut(&mut Expr) -> ControlFlow<B>> VisitorMut for Exprs<F> {
    type Break = B;
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<B> {
        self.0(expr)
    }
}

struct Relations<F>(F);

impl<B, F: FnMut(&ObjectName) -> ControlFlow<B>> Visitor for Relations<F> {
    type Break = B;
    fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<B> {
        self.0(name)
    }
}

/// Walks over a plan or an expression.
pub(crate) trait Nodes: TreeNode {
    /// As [`TreeNode::transform_up`].
    fn changed_up(
        self,
        mut change: impl FnMut(Self) -> Result<Transformed<Self>>,
    ) -> Result<Transformed<Self>> {
        let change: &mut dyn FnMut(Self) -> Result<Transformed<Self>> = &mut change;
        self.transform_up(change)
    }

    /// As [`TreeNode::transform_down`].
    fn changed_down(
        self,
        mut change: impl FnMut(Self) -> Result<Transformed<Self>>,
    ) -> Result<Transformed<Self>> {
        let change: &mut dyn FnMut(Self) -> Result<Transformed<Self>> = &mut change;
        self.transform_down(change)
    }

    /// The tree with others in place of the nodes for which `other` gives some, from inside out.
    fn replaced(self, mut other: impl FnMut(&Self) -> Result<Option<Self>>) -> Result<Self> {
        let replaced = self
            .changed_up(|node| Ok(other(&node)?.map_or(Transformed::no(node), Transformed::yes)))?;
        Ok(replaced.data)
    }

    /// Looks at every node, from outside in.
    fn each(&self, mut look: impl FnMut(&Self) -> Result<()>) -> Result<()> {
        self.each_node(|node| look(node).map(|()| TreeNodeRecursion::Continue)).map(drop)
    }

    /// As [`TreeNode::apply`].
    fn each_node<'n>(
        &'n self,
        mut look: impl FnMut(&'n Self) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let look: &mut dyn FnMut(&'n Self) -> Result<TreeNodeRecursion> = &mut look;
        self.apply(look)
    }

    /// As [`TreeNode::exists`].
    fn any_node(&self, mut is: impl FnMut(&Self) -> Result<bool>) -> Result<bool> {
        let is: &mut dyn FnMut(&Self) -> Result<bool> = &mut is;
        self.exists(is)
    }
}

impl<T: TreeNode> Nodes for T {}
