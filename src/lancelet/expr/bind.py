"""Bind expressions to a schema.

    written    age > 1.5 AND born < '2000-01-01' AND Name = 'x'
    bound      age > 1 AND born < DATE '2000-01-01' AND name = 'x'

Names are resolved, ignoring case if there is no exact match and the result is unambiguous.
Constants are converted to the type of the other operand, implicit casts are inserted, and `now()`
is evaluated once.

Bound expressions can be evaluated, used for pruning and matched with indices; constants have the
type of their column. Binding failures raise `ExpressionError` with the position in the text.
"""

from __future__ import annotations

from typing import Final, assert_never

import pyarrow as pa

from lancelet.errors import ExpressionError, similar_names
from lancelet.expr import expression as ex
from lancelet.expr.adapt import adapt_constant, as_double, compare_unrepresentable, fit_all
from lancelet.expr.coercion import CoercionError, common_type, plain
from lancelet.expr.data_types import is_bytes, is_number, is_text
from lancelet.expr.expression import Bound, Expression, Operator
from lancelet.expr.functions.arithmetic import arithmetic_types, result_with_interval
from lancelet.expr.functions.geometry import FROM_ARROW, is_geometric
from lancelet.expr.functions.registry import FUNCTIONS
from lancelet.expr.functions.times import current
from lancelet.expr.literal_text import UnfitError
from lancelet.expr.literals import Unrepresentable, fit
from lancelet.expr.names import extension_at, is_json, resolve
from lancelet.expr.operands import Source
from lancelet.expr.traversal import columns_of
from lancelet.format.geometry import WKB, geometry_kind

_SIGNS: Final = frozenset(ex.BINARY_SIGNS)
_NOWHERE: Final = Source("")


def bind_filter(
    expression: Expression, schema: pa.Schema, *, source: Source = _NOWHERE
) -> Expression:
    """Bind a filter to a schema; raise if it is not boolean."""
    return _Binder(schema, source).bind_boolean(expression)


def bind_value(expression: Expression, schema: pa.Schema, *, source: Source = _NOWHERE) -> Bound:
    """Bind an expression of any type to a schema."""
    binder = _Binder(schema, source)
    if isinstance(expression, ex.Call) and _is_binary(expression):
        sum_ = binder.arithmetic(expression, narrow=True)
        is_constant = not columns_of(sum_.expression) and pa.types.is_decimal(sum_.data_type)
        return Bound(ex.Cast(sum_.expression, pa.float64()), pa.float64()) if is_constant else sum_
    bound = binder.bind(expression)
    if isinstance(bound.expression, ex.Column):
        return Bound(bound.expression, resolve(bound.expression.path, schema).data_type)
    return binder.with_default_type(bound)


class _Binder:
    def __init__(self, schema: pa.Schema, source: Source) -> None:
        self.schema = schema
        self.source = source

    def error(self, message: str, node: Expression) -> ExpressionError:
        """Return an error that points to the position of a node."""
        return self.source.error(message, node)

    # --- nodes -------------------------------------------------------------------------------

    def bind(self, node: Expression) -> Bound:
        match node:
            case ex.Column():
                return self._column(node)
            case ex.Literal(scalar):
                return Bound(node, scalar.type)
            case ex.And(operands) | ex.Or(operands):
                parts = tuple(self.bind_boolean(operand) for operand in operands)
                return Bound(type(node)(parts), pa.bool_())
            case ex.Not(operand):
                return Bound(ex.Not(self.bind_boolean(operand)), pa.bool_())
            case ex.IsTrue(operand):
                return Bound(ex.IsTrue(self.bind_boolean(operand)), pa.bool_())
            case ex.IsNull(operand):
                return Bound(ex.IsNull(self.bind(operand).expression), pa.bool_())
            case ex.Comparison():
                return Bound(self._comparison(node), pa.bool_())
            case ex.In():
                return Bound(self._in(node), pa.bool_())
            case ex.Like():
                return Bound(self._like(node), pa.bool_())
            case ex.Call():
                return self._call(node)
            case ex.Case():
                return self._case(node)
            case ex.Cast():
                return self._cast(node)
            case ex.Member():
                return self._member(node)
            case _:
                assert_never(node)

    def bind_boolean(self, node: Expression) -> Expression:
        """Bind an expression and raise if it is not boolean or null."""
        bound = self.bind(node)
        if pa.types.is_boolean(plain(bound.data_type)):
            return bound.expression
        if pa.types.is_null(bound.data_type):
            return ex.Literal(pa.scalar(None, pa.bool_()))
        if isinstance(node, ex.Call) and node.function == "regexp_match":
            return ex.Not(ex.IsNull(bound.expression))
        raise self.error(
            f"expected a truth value; {bound.data_type} does not return a boolean", node
        )

    def _column(self, node: ex.Column) -> Bound:
        try:
            resolved = resolve(node.path, self.schema)
        except CoercionError as error:
            raise self.error(str(error), node) from error
        return Bound(ex.Column(resolved.path), plain(resolved.data_type))

    def _member(self, node: ex.Member) -> Bound:
        operand = self.bind(node.operand)
        if not pa.types.is_struct(operand.data_type):
            raise self.error(f"{operand.data_type} has no fields", node)
        index = operand.data_type.get_field_index(node.name)
        if index < 0:
            names = ", ".join(field.name for field in operand.data_type)
            raise self.error(f"no field {node.name!r}; the struct has {names}", node)
        member = ex.Member(operand.expression, node.name)
        return Bound(member, plain(operand.data_type.field(index).type))

    def _cast(self, node: ex.Cast) -> Bound:
        if self._is_json(node.operand) and is_text(node.data_type):
            text = ex.Call("json_extract", (node.operand, ex.literal("$")))
            return Bound(self._as(self._call(text), node.data_type, node), node.data_type)
        operand = self.bind(node.operand)
        if isinstance(operand.expression, ex.Literal):
            fitted = self._fitted(operand.expression, node.data_type)
            if isinstance(fitted, pa.Scalar):
                return Bound(ex.Literal(fitted), node.data_type)
        bound = ex.Cast(operand.expression, node.data_type, node.or_null)
        return Bound(bound, plain(node.data_type))

    def _case(self, node: ex.Case) -> Bound:
        conditions = [self.bind_boolean(when) for when, _ in node.branches]
        values = [
            self.bind(value) for value in (*(then for _, then in node.branches), node.otherwise)
        ]
        shared = self._shared_type(values, node)
        parts = [self._as(value, shared, node) for value in values]
        return Bound(ex.Case(tuple(zip(conditions, parts, strict=False)), parts[-1]), shared)

    def _shared_type(self, values: list[Bound], node: Expression) -> pa.DataType:
        column_types = [
            value.data_type for value in values if not isinstance(value.expression, ex.Literal)
        ]
        types = column_types + [
            self.with_default_type(v).data_type
            for v in values
            if isinstance(v.expression, ex.Literal)
        ]
        try:
            shared = plain(types[0])
            for data_type in types[1:]:
                shared = common_type(shared, plain(data_type))
        except CoercionError as error:
            raise self.error(str(error), node) from error
        return shared

    def with_default_type(self, bound: Bound) -> Bound:
        """Convert a constant without a column to its SQL default type: 1.5 is a double."""
        literal = bound.expression
        if isinstance(literal, ex.Literal) and pa.types.is_decimal(literal.data_type):
            return as_double(literal)
        return bound

    # --- comparisons -------------------------------------------------------------------------

    def _comparison(self, node: ex.Comparison) -> Expression:
        self._refuse_json(node.left, node.right)
        left, right = self.bind(node.left), self.bind(node.right)
        if isinstance(left.expression, ex.Literal) and not isinstance(right.expression, ex.Literal):
            return self._with_constant(
                node.operator.mirrored, right, left.expression, node, node.left
            )
        if isinstance(right.expression, ex.Literal) and not isinstance(left.expression, ex.Literal):
            return self._with_constant(node.operator, left, right.expression, node, node.right)
        try:
            shared = _operand_type(left, right)
        except CoercionError as error:
            raise self.error(str(error), node) from error
        self._require_order(node.operator, shared, node)
        sides = self._as(left, shared, node), self._as(right, shared, node)
        return ex.Comparison(node.operator, *sides)

    def _require_order(self, operator: Operator, data_type: pa.DataType, node: Expression) -> None:
        is_equality = operator not in {
            Operator.LESS,
            Operator.LESS_EQUAL,
            Operator.GREATER,
            Operator.GREATER_EQUAL,
        }
        if pa.types.is_interval(data_type) or (pa.types.is_nested(data_type) and not is_equality):
            raise self.error(f"values of type {data_type} have no order", node)

    def _with_constant(
        self,
        operator: Operator,
        value: Bound,
        constant: ex.Literal,
        node: Expression,
        constant_node: Expression,
    ) -> Expression:
        """Compare with a constant converted to the type of the other operand."""
        self._require_order(operator, value.data_type, node)
        if constant.is_null:
            null = ex.Literal(pa.scalar(None, value.data_type))
            return ex.Comparison(operator, value.expression, null)
        try:
            fitted = fit(constant.scalar, value.data_type)
        except UnfitError as error:
            raise self.error(
                f"{_abbreviate(value)} is {value.data_type}: {error}", constant_node
            ) from error
        except pa.ArrowInvalid as error:
            raise self.error(f"{constant} does not fit {value.data_type}: {error}", node) from error
        if isinstance(fitted, Unrepresentable):
            return compare_unrepresentable(operator, value, fitted)
        return ex.Comparison(operator, value.expression, ex.Literal(fitted))

    def _in(self, node: ex.In) -> Expression:
        self._refuse_json(node.operand)
        operand = self.bind(node.operand)
        try:
            values = fit_all(node.values, operand.data_type)
        except (UnfitError, pa.ArrowInvalid) as error:
            raise self.error(
                f"{_abbreviate(operand)} is {operand.data_type}: {error}", node
            ) from error
        if not len(values):
            return ex.Comparison(Operator.NOT_EQUAL, operand.expression, operand.expression)
        return ex.In(operand.expression, values)

    def _like(self, node: ex.Like) -> Expression:
        self._refuse_json(node.operand)
        operand, pattern = self.bind(node.operand), self.bind(node.pattern)
        if not (is_text(operand.data_type) or is_bytes(operand.data_type)):
            raise self.error(f"LIKE takes text, not {operand.data_type}", node.operand)
        if not isinstance(pattern.expression, ex.Literal):
            raise self.error("the pattern of LIKE must be a constant", node.pattern)
        if not (is_text(pattern.data_type) or pa.types.is_null(pattern.data_type)):
            raise self.error(
                f"the pattern of LIKE must be text, not {pattern.data_type}", node.pattern
            )
        return ex.Like(operand.expression, pattern.expression, node.escape, node.ignore_case)

    def _is_json(self, node: Expression) -> bool:
        return isinstance(node, ex.Column) and is_json(node.path, self.schema)

    def _refuse_json(self, *nodes: Expression) -> None:
        for node in nodes:
            if self._is_json(node):
                raise self.error(
                    "JSON columns cannot be compared directly; use json_extract or json_get_...",
                    node,
                )

    # --- calls -------------------------------------------------------------------------------

    def _call(self, node: ex.Call) -> Bound:
        name = node.function
        if _is_binary(node):
            return self.arithmetic(node, narrow=False)
        if name in {"-", "~"}:
            return self._unary_operator(node)
        present = current(name) if not node.arguments else None
        if present is not None:
            return Bound(ex.Literal(present), present.type)
        rewritten = _rewrite(node)
        if rewritten is not None:
            return self.bind(rewritten)
        if name == "named_struct":
            return self._named_struct(node)
        if node.function not in FUNCTIONS:
            raise self.error(
                f"unknown function {name}{similar_names(name, sorted(FUNCTIONS))}", node
            )
        return self._function(node)

    def _named_struct(self, node: ex.Call) -> Bound:
        """Bind `named_struct`, whose alternating names are part of the result type."""
        names = node.arguments[::2]
        literals = [name for name in names if isinstance(name, ex.Literal)]
        if not names or len(literals) * 2 != len(node.arguments):
            raise self.error("named_struct requires alternating constant names and values", node)
        values = [self.with_default_type(self.bind(value)) for value in node.arguments[1::2]]
        texts = [str(name.scalar.as_py()) for name in literals]
        result_type = pa.struct(
            [(name, bound.data_type) for name, bound in zip(texts, values, strict=True)]
        )
        pairs = zip(literals, (value.expression for value in values), strict=True)
        return Bound(
            ex.Call("named_struct", tuple(part for pair in pairs for part in pair)), result_type
        )

    def _function(self, node: ex.Call) -> Bound:
        function = FUNCTIONS[node.function]
        arguments = [self.with_default_type(self.bind(argument)) for argument in node.arguments]
        if is_geometric(node.function):
            arguments = [self._to_wkb(argument) for argument in arguments]
        try:
            argument_types, result_type = function.signature(
                [argument.data_type for argument in arguments]
            )
        except CoercionError as error:
            argument_types, result_type = self._with_constants_fitted(node, arguments, error)
        parts = [self._as(*pair, node) for pair in zip(arguments, argument_types, strict=True)]
        return Bound(ex.Call(node.function, tuple(parts)), result_type)

    def _to_wkb(self, bound: Bound) -> Bound:
        """Convert geometry columns to WKB for geometric functions; return others unchanged."""
        column = bound.expression
        if not isinstance(column, ex.Column):
            return bound
        kind = geometry_kind(extension_at(column.path, self.schema))
        if kind is None or kind == WKB:
            return bound
        return Bound(ex.Call(FROM_ARROW, (column, ex.literal(kind))), pa.large_binary())

    def _with_constants_fitted(
        self, node: ex.Call, arguments: list[Bound], error: CoercionError
    ) -> tuple[tuple[pa.DataType, ...], pa.DataType]:
        """Retry a signature with quoted constants converted to the type of the first column."""
        columns = [each for each in arguments if not isinstance(each.expression, ex.Literal)]
        if not FUNCTIONS[node.function].unify or not columns:
            raise self.error(str(error), node)
        types = [
            columns[0].data_type if isinstance(each.expression, ex.Literal) else each.data_type
            for each in arguments
        ]
        try:
            return FUNCTIONS[node.function].signature(types)
        except CoercionError:
            raise self.error(str(error), node) from error

    def _unary_operator(self, node: ex.Call) -> Bound:
        operand = self.with_default_type(self.bind(node.arguments[0]))
        data_type = operand.data_type
        integers_only = node.function == "~"
        duration = pa.types.is_duration(data_type) and not integers_only
        fits = pa.types.is_integer(data_type) if integers_only else is_number(data_type)
        if not (fits or duration):
            raise self.error(f"{node.function} does not take {data_type}", node)
        if pa.types.is_unsigned_integer(data_type) and not integers_only:
            signed = pa.int64() if data_type.bit_width > 16 else pa.int32()
            operand = Bound(self._as(operand, signed, node), signed)
        return Bound(ex.Call(node.function, (operand.expression,)), operand.data_type)

    def arithmetic(self, node: ex.Call, *, narrow: bool) -> Bound:
        """Bind a binary arithmetic operator."""
        if node.function == "||":
            return self._function(node)
        left, right = self.bind(node.arguments[0]), self.bind(node.arguments[1])
        for operand, other in ((left, right), (right, left)):
            if pa.types.is_null(operand.data_type):
                return Bound(ex.Literal(pa.scalar(None, other.data_type)), other.data_type)
        left, right = (
            adapt_constant(node.function, left, right, narrow=narrow),
            adapt_constant(node.function, right, left, narrow=narrow),
        )
        try:
            operand_types = arithmetic_types(
                node.function, plain(left.data_type), plain(right.data_type)
            )
        except CoercionError as error:
            raise self.error(str(error), node) from error
        parts = (self._as(left, operand_types[0], node), self._as(right, operand_types[1], node))
        result_type = operand_types[2]
        for part in parts:
            if isinstance(part, ex.Literal) and pa.types.is_interval(part.data_type):
                result_type = result_with_interval(result_type, part.scalar)
        return Bound(ex.Call(node.function, parts), result_type)

    def _as(self, bound: Bound, data_type: pa.DataType, node: Expression) -> Expression:
        """Convert an expression to a type; constants are converted during binding."""
        if bound.data_type == data_type:
            return bound.expression
        if isinstance(bound.expression, ex.Literal):
            fitted = self._fitted(bound.expression, data_type)
            if isinstance(fitted, pa.Scalar):
                return ex.Literal(fitted)
            if is_text(data_type):
                return ex.Cast(bound.expression, data_type)
            raise self.error(f"{bound.expression} is not a valid {data_type}", node)
        return ex.Cast(bound.expression, data_type)

    def _fitted(self, literal: ex.Literal, data_type: pa.DataType) -> pa.Scalar | None:
        try:
            fitted = fit(literal.scalar, data_type)
        except (UnfitError, pa.ArrowInvalid):
            return None
        return None if isinstance(fitted, Unrepresentable) else fitted


def _is_binary(node: ex.Call) -> bool:
    return node.function in _SIGNS and len(node.arguments) == 2


def _abbreviate(bound: Bound) -> str:
    text = str(bound.expression)
    return text if len(text) < 60 else "the value"


def _operand_type(left: Bound, right: Bound) -> pa.DataType:
    """Return the common type of two operands; a quoted constant takes the type of the other."""
    try:
        return common_type(plain(left.data_type), plain(right.data_type))
    except CoercionError:
        for operand, other in ((left, right), (right, left)):
            if isinstance(operand.expression, ex.Literal) and is_text(operand.data_type):
                return other.data_type
        raise


# --- functions that are rewritten ------------------------------------------------------------


def _rewrite(node: ex.Call) -> Expression | None:
    """Return the equivalent expression of a function, or None."""
    arguments = node.arguments
    match node.function, len(arguments):
        case "date_part" | "datepart", 2 if _is_text_constant(arguments[0], "epoch"):
            return ex.Call("epoch", arguments[1:])
        case "isnull" | "is_null", 1:
            return ex.IsNull(arguments[0])
        case "is_not_null", 1:
            return ex.Not(ex.IsNull(arguments[0]))
        case "if" | "iff", 3:
            return ex.Case(((arguments[0], arguments[1]),), arguments[2])
        case "nvl2", 3:
            return ex.Case(((ex.Not(ex.IsNull(arguments[0])), arguments[1]),), arguments[2])
        case "get_field", 2 if isinstance(arguments[1], ex.Literal):
            name = str(arguments[1].scalar.as_py())
            if isinstance(arguments[0], ex.Column):
                return ex.Column((*arguments[0].path, name))
            return ex.Member(arguments[0], name)
    return None


def _is_text_constant(node: Expression, text: str) -> bool:
    return isinstance(node, ex.Literal) and str(node.scalar.as_py()).lower() == text
