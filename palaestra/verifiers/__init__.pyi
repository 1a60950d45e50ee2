"""The public names of `pl.verifiers`, and where each lies."""

# ruff: noqa: I001

from .answers.choice import (
    ContainedOption as ContainedOption,
    MultipleChoice as MultipleChoice,
    contained_options as contained_options,
    option_order as option_order,
)
from .answers.final import (
    boxed_answer as boxed_answer,
    same_answer as same_answer,
    tagged_answer as tagged_answer,
)
from .answers.judgement import (
    REFUSAL_PHRASES as REFUSAL_PHRASES,
    Factuality as Factuality,
    Selective as Selective,
    Verdict as Verdict,
    fact_worth as fact_worth,
    read_verdict as read_verdict,
    split_statements as split_statements,
)
from .answers.place import (
    answer_place as answer_place,
)
from .answers.short import (
    Abstention as Abstention,
    ExactAnswer as ExactAnswer,
    JsonAnswer as JsonAnswer,
    Keywords as Keywords,
    NumberAnswer as NumberAnswer,
    SetAnswer as SetAnswer,
    TokenF1 as TokenF1,
    answer_f1 as answer_f1,
    contains_term as contains_term,
    matches_gold as matches_gold,
    normalise_text as normalise_text,
)
from .answers.tools import (
    ToolAnswer as ToolAnswer,
    ToolCalls as ToolCalls,
)
from .base import (
    Judgement as Judgement,
    Verifier as Verifier,
    binary_judgement as binary_judgement,
    guard_verifier as guard_verifier,
    require_field as require_field,
    strip_thinking as strip_thinking,
)
from .code.patches import (
    Patch as Patch,
    difflib_ratio as difflib_ratio,
    unified_diffs as unified_diffs,
)
from .code.programs import (
    ApiMigration as ApiMigration,
    CodeTests as CodeTests,
    code_blocks as code_blocks,
)
from .compose import (
    Clip as Clip,
    Delta as Delta,
    Gate as Gate,
    Min as Min,
    Product as Product,
    WeightedMean as WeightedMean,
    clip_delta_steps as clip_delta_steps,
    clip_steps as clip_steps,
    delta_steps as delta_steps,
)
from .gym import (
    GymAnswer as GymAnswer,
)
from .logic.equivalence import (
    are_equivalent as are_equivalent,
)
from .logic.stl import (
    STL_ATOM as STL_ATOM,
    NotFormula as NotFormula,
    parse_formula as parse_formula,
)
from .logic.temporal import (
    Temporal as Temporal,
    formula_aspects as formula_aspects,
)
from .maths.expressions import (
    Antiderivative as Antiderivative,
    Countdown as Countdown,
    Math as Math,
)
from .molecules import (
    DESCRIPTORS as DESCRIPTORS,
    descriptor_named as descriptor_named,
)
from .orders import (
    ORDER_PASSAGES as ORDER_PASSAGES,
    read_order as read_order,
    repair_order as repair_order,
    write_order as write_order,
)
from .ranking import (
    document_grades as document_grades,
    ndcg as ndcg,
    rank_sources as rank_sources,
    recall as recall,
    reciprocal_rank as reciprocal_rank,
)
from .registry import (
    VERIFIERS as VERIFIERS,
    get_verifier as get_verifier,
)
from .smt.proofs import (
    ExistenceProof as ExistenceProof,
    need_z3 as need_z3,
    prove_existence as prove_existence,
)
from .smt.statements import (
    ExistenceStatement as ExistenceStatement,
    Unreadable as Unreadable,
    read_claim as read_claim,
    read_statement as read_statement,
)
from .sql.queries import (
    PartialSql as PartialSql,
    Sql as Sql,
    TableSql as TableSql,
    extract_query as extract_query,
)
from .text.constraints import (
    Constraints as Constraints,
    constraint_level as constraint_level,
    constraint_wording as constraint_wording,
    has_conflict as has_conflict,
)
from .text.formats import (
    Boxed as Boxed,
    Clean as Clean,
    Label as Label,
    Tags as Tags,
    TheoremVariant as TheoremVariant,
)
from .text.similarity import (
    count_character_ngrams as count_character_ngrams,
    count_cosine as count_cosine,
    edit_distance as edit_distance,
    edit_similarity as edit_similarity,
    jaccard as jaccard,
    rouge_l as rouge_l,
)
from .text.spelling import (
    Spelling as Spelling,
    cluster_consensus as cluster_consensus,
    edits as edits,
    normalise_characters as normalise_characters,
    rescale_similarity as rescale_similarity,
)
from .text.translation import (
    Translation as Translation,
)
from .verilog.bench import (
    inputs_of as inputs_of,
    read_stimuli as read_stimuli,
)
from .verilog.designs import (
    VerilogDesign as VerilogDesign,
)
