"""60 theorems of classical propositional logic over p, q, r, and 60 formulas that are none."""

THEOREMS = """
p -> p
p -> q -> p
(p -> q -> r) -> (p -> q) -> p -> r
p & q -> p
p & q -> q
p -> q -> p & q
p -> p | q
q -> p | q
(p -> r) -> (q -> r) -> p | q -> r
(p -> q) -> (p -> ~q) -> ~p
~p -> p -> q
~~p -> p
p -> ~~p
~~~p -> ~p
p | ~p
((p -> q) -> p) -> p
(p -> q) | (q -> p)
(p -> q) -> ~q -> ~p
(~q -> ~p) -> p -> q
(~p -> q) -> ~q -> p
p & q <-> q & p
p | q <-> q | p
p & (q & r) <-> (p & q) & r
p | (q | r) <-> (p | q) | r
p & (q | r) <-> p & q | p & r
p | q & r <-> (p | q) & (p | r)
~(p & q) <-> ~p | ~q
~(p | q) <-> ~p & ~q
(p -> q) <-> ~p | q
~(p -> q) <-> p & ~q
(p <-> q) <-> (q <-> p)
(p <-> (q <-> r)) <-> ((p <-> q) <-> r)
(p <-> q) <-> p & q | ~p & ~q
~(p <-> ~p)
~(p & ~p)
false -> p
~false
p & false <-> false
p | false <-> p
(p -> false) <-> ~p
p & p <-> p
p | p <-> p
p & (p | q) <-> p
p | p & q <-> p
(p -> q) -> (q -> r) -> p -> r
(p -> q) & (p -> r) <-> (p -> q & r)
(p -> r) & (q -> r) <-> (p | q -> r)
(p -> q -> r) <-> (p & q -> r)
(p -> q -> r) -> q -> p -> r
(p -> q | r) -> (p -> q) | (p -> r)
(p & q -> r) -> (p -> r) | (q -> r)
p -> (p -> q) -> q
~p & (p | q) -> q
(p | q) & (~p | r) -> q | r
(p -> q) & (~p -> q) -> q
(p -> ~p) -> ~p
(~p -> p) -> p
((p -> q) -> q) -> p | q
(p -> q) -> (p -> p & q)
(p | q) & ~(p & q) -> (p & ~q) | (~p & q)
""".strip().splitlines()
OTHERS = """
p
~p
false
p -> q
p & q
p | q
p & ~p
p -> ~p
~p -> p
p -> p & q
p | q -> p
p | q -> q
p | q -> p & q
(p -> q) -> p
(p -> q) -> q
(p -> q) -> q -> p
(p -> q) -> ~p -> ~q
(p -> q) & q -> p
(p -> q) & ~p -> ~q
(p -> q) <-> (q -> p)
(p -> q) <-> p | q
(p -> q) <-> p & q
~(p & q) -> ~p & ~q
~p | ~q -> ~(p | q)
~(p -> q) -> q
~(p -> q) -> ~p
~p & ~q -> p & q
p <-> q
p <-> ~p
p | ~q
p -> q & r
p & q -> r
(p -> r) -> p | q -> r
(p & q -> r) -> p -> r
(p | q -> r) -> r
(p -> q | r) -> p -> q
(p -> q | r) -> (p -> q) & (p -> r)
(p -> q) -> (q -> r) -> r -> p
(p -> q) -> (p -> r) -> q -> r
(p -> q) | (p -> r) -> p
p & (q | r) -> p & q
p | q & r -> p & (q | r)
p | q & r -> (p | q) & r
(p -> q) -> r
((p -> q) -> p) -> q
((p -> q) -> q) -> p
((p -> q) -> q) -> q
~~p -> q
p -> false
(p -> false) -> false
~false -> p
p | false
p & ~false -> false
(p <-> q) -> p & q
(p <-> q) -> p | q
(p <-> q) & (q <-> r) -> p
(p <-> (q <-> r)) -> (p <-> q)
(p | q) & (p | r) -> q | r
(p | q) & (~p | r) -> q & r
(p & q) | (q & r) | (p & r) -> p
""".strip().splitlines()
