"""From sizes for some classes to sizes for all of them, or a reason why that cannot be.

Window operators give sizes that are *functions* of others (`Driven`). They are re-run in the
order of the graph; a size that must change moves a symbol that nobody asked for: driven ones
first, rigid and requested ones never. This repeats until nothing moves. It is pure and takes
about a millisecond, so sizes that cannot be cost no question to the oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from onnxreduce.dims.expr import Expr, Prod, Same, Sum, Sym, leaves, settled
from onnxreduce.edits import Conflict

Size = Callable[[Expr], int]
"""The size of an expression in a plan."""
SizeFn = Callable[[Size], int]

ROUNDS = 12
SCAN = 512


@dataclass(eq=False)
class Driven:
    """An axis whose size is a function of others."""

    axis: Expr
    size: SizeFn
    why: str
    reads: tuple[Sym, ...] = ()
    defines: bool = False
    """Whether the axis is a symbol that nothing else determines, itself least of all."""


@dataclass(eq=False)
class Check:
    """A condition on sizes, such as ``pad < kernel``."""

    holds: Callable[[Size], bool]
    why: str


@dataclass(eq=False)
class System:
    """All that is known about sizes after an analysis.

    Attributes:
        driven: in topological order of the nodes.
        weights: on how many axes of stored tensors a symbol is. These can shrink but not grow.
        vanishing: symbols that may become zero.
        filled: axes that these are part of, and that may not.
    """

    driven: list[Driven] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    same: list[Same] = field(default_factory=list)
    weights: dict[Sym, int] = field(default_factory=dict)
    vanishing: frozenset[Sym] = frozenset()
    filled: tuple[Expr, ...] = ()

    def settle(self, weights: dict[Sym, int]) -> None:
        """Resolve every expression once, and find what each function reads."""
        self.weights = weights
        pairs = [Same(settled(pair.left), settled(pair.right), pair.node) for pair in self.same]
        self.same = [pair for pair in pairs if pair.left is not pair.right]
        for equation in self.driven:
            equation.axis = settled(equation.axis)
            seen: dict[Sym, None] = {}

            def observe(expr: Expr, seen: dict[Sym, None] = seen) -> int:
                seen.update(dict.fromkeys(leaves(expr)))
                return expr.size

            equation.size(observe)
            equation.reads = tuple(seen)
        self._follow()

    def _follow(self) -> None:
        """Which symbols follow which. A skip connection around a stride closes a circle: its
        first symbol stays free, and the last function is a condition."""
        sources: dict[Sym, set[Sym]] = {}
        for equation in self.driven:
            axis = equation.axis
            if not isinstance(axis, Sym) or axis.rigid or axis in sources:
                continue
            below = set(equation.reads)
            for symbol in equation.reads:
                below |= sources.get(symbol, set())
            if axis not in below:
                sources[axis] = below
                equation.defines = True
        self.followers = frozenset(sources)

    followers: frozenset[Sym] = frozenset()
    """Symbols that are themselves driven."""


class Plan:
    """Sizes for every symbol; symbols not in `sizes` are as they were."""

    def __init__(self, sizes: dict[Sym, int]) -> None:
        self.sizes = sizes

    def size(self, expr: Expr) -> int:
        """The size of an expression in this plan."""
        return self._size(expr.settled or settled(expr))

    def _size(self, expr: Expr) -> int:
        if isinstance(expr, Sym):
            return self.sizes.get(expr, expr.size)
        if isinstance(expr, Prod):
            result = 1
            for part in expr.parts:
                result *= self._size(part)
            return result
        return sum([self._size(part) for part in expr.parts])

    def changed(self) -> dict[Sym, int]:
        return {symbol: size for symbol, size in self.sizes.items() if size != symbol.size}


def solve(
    system: System, asked: Mapping[Sym, int], wished: Mapping[Sym, int] | None = None
) -> Plan:
    """Sizes for all symbols: `asked` exactly, `wished` where the rest lets them.

    Raises:
        Conflict: no consistent sizes were found.
    """
    return _Solver(system, asked, wished or {}).run()


class _Solver:
    def __init__(self, system: System, asked: Mapping[Sym, int], wished: Mapping[Sym, int]) -> None:
        self.system = system
        self.locked = set(asked)
        self.plan = Plan({**wished, **asked})
        self.moved: set[Sym] = set()
        for symbol, size in self.plan.sizes.items():
            if size != symbol.size and not self._allowed(symbol, size):
                raise Conflict(f"{symbol!r} cannot be {size}")

    def run(self) -> Plan:
        for _ in range(ROUNDS):
            self.moved.clear()
            try:
                for equation in self.system.driven:
                    self._drive(equation)
            except (ArithmeticError, ValueError) as error:
                raise Conflict(f"a computed size: {error}") from error
            for pair in self.system.same:
                self._equalise(pair)
            if not self.moved:
                break
        else:
            raise Conflict("sizes do not settle")
        if any(self.plan.size(axis) < 1 for axis in self.system.filled):
            raise Conflict("an axis would be empty")
        for check in self.system.checks:
            if not check.holds(self.plan.size):
                raise Conflict(check.why)
        return self.plan

    def _allowed(self, symbol: Sym, size: int) -> bool:
        if symbol.rigid or size < (0 if symbol in self.system.vanishing else 1):
            return False
        return size <= symbol.size or symbol not in self.system.weights

    def _drive(self, equation: Driven) -> None:
        want = equation.size(self.plan.size)
        have = self.plan.size(equation.axis)
        if want == have:
            return
        bound = equation.axis in self.system.followers and not equation.defines
        if want >= 0 and not bound and self._move(equation.axis, want):
            return
        if not self._pull(equation, have):
            raise Conflict(f"{equation.why}: {want} where {have} is needed")

    def _equalise(self, pair: Same) -> None:
        left, right = self.plan.size(pair.left), self.plan.size(pair.right)
        if left == right:
            return
        larger, smaller = (pair.left, pair.right) if left > right else (pair.right, pair.left)
        if not self._move(larger, min(left, right)) and not self._move(smaller, max(left, right)):
            raise Conflict(f"{pair.node}: {left} elements against {right}")

    def _move(self, expr: Expr, want: int) -> bool:
        """Give an expression the size `want` by changing one symbol of it."""
        if isinstance(expr, Sym):
            if expr in self.locked or expr in self.moved or not self._allowed(expr, want):
                return False
            self.plan.sizes[expr] = want
            self.moved.add(expr)
            return True
        whole = self.plan.size(expr)
        for part in self._preferred(expr.parts, grow=want > whole):
            size = self.plan.size(part)
            if isinstance(expr, Sum):
                if want >= whole - size and self._move(part, want - whole + size):
                    return True
            elif size and want % (rest := whole // size) == 0 and self._move(part, want // rest):
                return True
        return False

    def _preferred(self, parts: tuple[Expr, ...], grow: bool) -> list[Expr]:
        """Driven symbols first; to grow, what the fewest stored axes are made of; to shrink, what
        the most are."""
        heavy = self.system.weights
        sign = 1 if grow else -1

        def reluctance(part: Expr) -> tuple[bool, int, int]:
            weight = max((heavy.get(leaf, 0) for leaf in leaves(part)), default=0)
            return part not in self.system.followers, sign * weight, -self.plan.size(part)

        return sorted(parts, key=reluctance)

    def _pull(self, equation: Driven, have: int) -> bool:
        """Change something that a function reads so that it gives `have` again."""
        for symbol in equation.reads:
            if symbol in self.locked or symbol in self.moved or symbol.rigid:
                continue
            if symbol in self.system.followers:
                continue
            before = self.plan.sizes.get(symbol, symbol.size)
            for size in range(min(symbol.size, SCAN), 0, -1):
                self.plan.sizes[symbol] = size
                if equation.size(self.plan.size) == have:
                    self.moved.add(symbol)
                    return True
            self.plan.sizes[symbol] = before
        return False


def order(symbols: Iterable[Sym]) -> Sequence[Sym]:
    """A fixed order: the largest first, then the oldest."""
    return sorted(symbols, key=lambda symbol: (-symbol.size, symbol.serial))
