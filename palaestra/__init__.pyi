"""The public interface: each name, and where it lies."""

# ruff: noqa: I001
# fmt: off

# What a user calls
from .api.asking import compare as compare, evaluate as evaluate, explain as explain
from .api.run import RecordedGroup as RecordedGroup, Run as Run, open as open
from .api.training import train as train
from .run.trust import trust as trust
from .catalogue import recipe as recipe
from .values import override as override, vary as vary
from .card import Card as Card, Size as Size

# The nouns, and what a stage is given
from .types import (
    EXACT as EXACT, SOLVED_TOTAL as SOLVED_TOTAL, Act as Act, Ask as Ask,
    Batch as Batch, Call as Call, ChatRequest as ChatRequest, Choices as Choices,
    Completion as Completion, Dialect as Dialect, Episode as Episode, Event as Event,
    Example as Example, Frame as Frame,
    Group as Group, Groups as Groups, Key as Key,
    Malformed as Malformed, Message as Message, Meter as Meter,
    Objective as Objective, Origin as Origin, Outputs as Outputs, Player as Player,
    Reply as Reply, Result as Result, Reward as Reward, Row as Row, Sampling as Sampling,
    Segment as Segment, Signals as Signals,
    State as State, Task as Task, Tasks as Tasks, ToolSchema as ToolSchema, View as View,
    World as World, payment as payment, rng_of as rng_of, seed_of as seed_of,
    stage as stage, value_class as value_class,
)
from .context import (
    Bench as Bench, Client as Client, Collect as Collect, Context as Context,
    Credit as Credit, Draw as Draw,
    Engine as Engine, Observe as Observe,
    RewardFn as RewardFn, Runnable as Runnable, Source as Source,
    Update as Update,
)
from .abilities import (
    Answers as Answers, Casts as Casts, Checks as Checks, CountsSamples as CountsSamples,
    Demonstrates as Demonstrates, DropsEqual as DropsEqual, FindsMistakes as FindsMistakes,
    GivesBatches as GivesBatches, GivesTasks as GivesTasks, HeldOutSize as HeldOutSize,
    HoldsEpisodes as HoldsEpisodes,
    KeepsEqual as KeepsEqual, LeavesEqual as LeavesEqual, LimitsTurns as LimitsTurns, Mixes as Mixes,
    OffersTools as OffersTools, ReadsCalls as ReadsCalls,
    PaysGold as PaysGold, PutsAnswers as PutsAnswers, Solves as Solves, SolvesSome as SolvesSome,
    Spreads as Spreads, TakesForms as TakesForms, TrainingSize as TrainingSize, Warns as Warns,
    WritesAnswers as WritesAnswers,
)
from .errors import (
    Fatal as Fatal, Fault as Fault, PalaestraError as PalaestraError, Paused as Paused,
    Stopped as Stopped, UserError as UserError,
)
from .pictures import PICTURE_MARK as PICTURE_MARK, Picture as Picture
from .schedule import (
    Cosine as Cosine, Exponential as Exponential, Jump as Jump, Linear as Linear,
    Sigmoid as Sigmoid, Staircase as Staircase, check_bounds as check_bounds,
)
from .stats import Interval as Interval, proportion as proportion

# A method
from .method import Learner as Learner, Recipe as Recipe, Unchanged as Unchanged
from .rollout.queue import Schedule as Schedule
from .pipeline import Output as Output, Part as Part, Pipeline as Pipeline, warm as warm
from .update import AdamW as AdamW, Cycle as Cycle, Plain as Plain
from .mixing import (
    AdaptiveMixture as AdaptiveMixture, Interpolation as Interpolation, MetaWeight as MetaWeight,
    MixtureReadings as MixtureReadings, WeightRule as WeightRule,
)

# Problems and worlds
from .tasks.files import FileTasks as FileTasks
from .tasks.gym import Gym as Gym
from .tasks.mixture import Mixture as Mixture, part_task as part_task
from .tasks.options import (
    add_options as add_options, contains_options as contains_options,
    letter_options as letter_options, option_texts as option_texts,
)
from .toys.base import (
    ANSWER_PREFIX as ANSWER_PREFIX, answer_lines as answer_lines, demonstration as demonstration,
    exact_match as exact_match, final_answer as final_answer, format_answer as format_answer,
)
from .toys.chain import ArithmeticChain as ArithmeticChain
from .toys.constraints import ConstraintTasks as ConstraintTasks
from .toys.facts import CommonFacts as CommonFacts
from .toys.count import Count as Count
from .toys.formats import (
    ANSWER_AT_ONCE as ANSWER_AT_ONCE, THINK_STEPWISE as THINK_STEPWISE,
    UNSURE_ANSWER as UNSURE_ANSWER, add_examples as add_examples,
    add_instruction as add_instruction,
    judging_task as judging_task, question_text as question_text,
)
from .toys.grid import Grid as Grid, GridState as GridState, GridTasks as GridTasks
from .toys.hop import Hop as Hop, HopTasks as HopTasks
from .toys.judging import CompareAnswers as CompareAnswers, Grade as Grade, Pairs as Pairs
from .toys.knights import Knights as Knights
from .toys.ladder import Add as Add, Bool as Bool, Sort as Sort
from .toys.lake import (
    Lake as Lake, LakeTasks as LakeTasks, square_name as square_name, way_to as way_to,
)
from .toys.lookup import LookupTasks as LookupTasks
from .toys.mistakes import wrong_answer as wrong_answer
from .toys.preferences import Preferences as Preferences
from .toys.rec import Rec as Rec
from .toys.rubrics import Rubrics as Rubrics
from .toys.screen import Screen as Screen, action_parts as action_parts
from .toys.unanswerable import Unanswerable as Unanswerable
from .toys.variants import Variants as Variants
from .toys.wiki import WikiTasks as WikiTasks
from .toys.words import Words as Words
from .worlds.adapters.base import (
    AdaptedTasks as AdaptedTasks, AdaptedWorld as AdaptedWorld, Illegal as Illegal, Live as Live,
    Scene as Scene,
)
from .worlds.adapters.gymnasium import GymnasiumWorld as GymnasiumWorld
from .worlds.adapters.methods import MethodsWorld as MethodsWorld
from .worlds.adapters.openenv import OpenEnvWorld as OpenEnvWorld
from .worlds.adapters.pettingzoo import PettingZooWorld as PettingZooWorld
from .worlds.adapters.spiel import SpielWorld as SpielWorld
from .worlds.adapters.textarena import TextArenaWorld as TextArenaWorld
from .worlds.adapters.verifiers import VerifiersWorld as VerifiersWorld
from .worlds.blind import Blind as Blind
from .worlds.forced import Forced as Forced
from .worlds.lookup import Lookup as Lookup
from .worlds.notebook import Notebook as Notebook
from .worlds.pair import Pair as Pair
from .worlds.question import Question as Question
from .worlds.search import Search as Search, SearchRules as SearchRules
from .worlds.tictactoe import TicTacToe as TicTacToe, TicTacToeTasks as TicTacToeTasks
from .worlds.tools import WithTools as WithTools
from .worlds.user import UserTasks as UserTasks, UserWorld as UserWorld

# Which problems
from .curriculum.arms import (
    Bandit as Bandit, Learnability as Learnability, arms_of as arms_of,
    draw_from_arms as draw_from_arms, first_number as first_number,
)
from .curriculum.deduplicate import (
    Deduplicate as Deduplicate, Deduplicated as Deduplicated, prompt_text as prompt_text,
)
from .curriculum.difficulty import (
    EasyToHard as EasyToHard, ProbedArms as ProbedArms, pass_rates as pass_rates,
)
from .curriculum.draw import Series as Series, Shuffled as Shuffled
from .curriculum.memory import (
    Memorise as Memorise, Note as Note, Recalled as Recalled, notes_of as notes_of,
)
from .curriculum.partial import Whole as Whole
from .curriculum.pool import Everything as Everything, Mixed as Mixed, is_mixed as is_mixed
from .curriculum.prioritised import Prioritised as Prioritised, Successes as Successes
from .curriculum.replay import Replay as Replay
from .curriculum.respelled import Respelled as Respelled
from .curriculum.select import NearValue as NearValue, Select as Select
from .curriculum.written import (
    ProblemOrder as ProblemOrder, ProblemsByModel as ProblemsByModel,
    ProblemsFromSource as ProblemsFromSource, ProblemWriter as ProblemWriter,
    agreed_answer as agreed_answer,
)

# Attempts
from .rollout.cast import (
    Acted as Acted, Alternate as Alternate, Cast as Cast, Either as Either, Frozen as Frozen,
    Rival as Rival, Snapshots as Snapshots, Sometimes as Sometimes,
)
from .rollout.branch import (
    Finished as Finished, MarkSteps as MarkSteps, Partial as Partial, PrefixValues as PrefixValues,
    Rescue as Rescue,
)
from .rollout.budget import (
    Enough as Enough, Extra as Extra, Few as Few, Instead as Instead, Pick as Pick,
    Regroup as Regroup, TopUp as TopUp,
)
from .rollout.collect import (
    none_right as none_right,
    Links as Links, MuteTruncated as MuteTruncated, Sample as Sample, Score as Score,
    Until as Until, When as When, apply_reward as apply_reward, judge_group as judge_group,
    links as links,
)
from .rollout.guide import (
    Begin as Begin, GuidanceSource as GuidanceSource, Hide as Hide, Mark as Mark, Rewrite as Rewrite,
    Under as Under,
)
from .rollout.hints import (
    Criteria as Criteria, Examples as Examples, Feedback as Feedback, HintColumn as HintColumn,
    Hinted as Hinted, Unleaked as Unleaked, Working as Working, another_task as another_task,
    leaks_answer as leaks_answer,
)
from .rollout.player import (
    EnginePlayer as EnginePlayer, Handover as Handover, Script as Script,
)
from .rollout.recorded import (
    Demonstrate as Demonstrate, Offline as Offline, Recorded as Recorded, Swap as Swap,
    document_episode as document_episode, recorded_episode as recorded_episode, written_answer as written_answer,
)
from .rollout.search import TreeSearch as TreeSearch, cut_episode as cut_episode
from .rollout.steps import answer_steps as answer_steps
from .rollout.tree import (
    BestFirst as BestFirst, Branch as Branch, Opening as Opening, Puct as Puct, Ucb as Ucb, Uct as Uct,
    grow_tree as grow_tree,
)
from .engines.endpoint import Chatter as Chatter, EndpointPlayer as EndpointPlayer
from .engines.own import OwnEngine as OwnEngine
from .services.chat.endpoint import Endpoint as Endpoint
from .services.chat.local import LocalModel as LocalModel
from .services.chat.scripted import Scripted as Scripted
from .services.index import BM25 as BM25
from .services.sandbox import (
    check_program as check_program, check_python as check_python, open_session as open_session,
    run_program as run_program,
)

# Rewards
from .rewards.answer_f1 import AnswerF1 as AnswerF1
from .rewards.bridging import (
    Bridged as Bridged, Fit as Fit, fit_note as fit_note, fit_twice as fit_twice,
)
from .rewards.critic import Critique as Critique, ModelCritic as ModelCritic, Oracle as Oracle
from .rewards.critique import CritiqueThenScore as CritiqueThenScore, Critiqued as Critiqued
from .rewards.intrinsic import (
    AnswerProbability as AnswerProbability, Endogenous as Endogenous,
    InformationGain as InformationGain, Majority as Majority, Reducer as Reducer,
    last_policy_row as last_policy_row, last_turn_prompt as last_turn_prompt,
    majority_answer as majority_answer, reasoning_prefix as reasoning_prefix,
    row_tokens as row_tokens, sequence_confidence as sequence_confidence,
    surprise_shares as surprise_shares,
)
from .rewards.labels import (
    QUALITY_LABELS as QUALITY_LABELS, Also as Also, Beside as Beside, Labels as Labels,
    Noisy as Noisy, text_properties as text_properties,
)
from .rewards.learned import (
    Below as Below, Ensemble as Ensemble, Learned as Learned, RewardModel as RewardModel, Robust as Robust,
    mean_over_heads as mean_over_heads,
)
from .rewards.probe import RankingProbe as RankingProbe
from .rewards.rewritten import (
    AsQuery as AsQuery, Rewritten as Rewritten, VerifierInput as VerifierInput, Weighed as Weighed,
    write_blocks as write_blocks,
)
from .rewards.rules import Refine as Refine, RuleList as RuleList, RuleVerdict as RuleVerdict
from .rewards.together import judge_together as judge_together
from .rewards.user import UserReward as UserReward
from .rewards.verified import Verified as Verified
from .rewards.verify import (
    ByDomain as ByDomain, Exact as Exact, Verify as Verify, response_text as response_text,
)
from .rewards.weighted import AccuracyAndFormat as AccuracyAndFormat, Weighted as Weighted
from .rewards.where import Where as Where
from .judges.audit import (
    attack_reward as attack_reward, judge_agreement as judge_agreement, order_bias as order_bias,
)
from .judges.pairwise import Pairwise as Pairwise
from .judges.pointwise import Judge as Judge
from .judges.principles import (
    PRINCIPLE_QUESTIONS as PRINCIPLE_QUESTIONS, Entailed as Entailed,
    PrincipleQuestion as PrincipleQuestion, Principled as Principled,
    label_verdict as label_verdict,
)
from .judges.prompt import (
    CAUTION as CAUTION, GRADE_PROMPT as GRADE_PROMPT, defuse as defuse, last_line as last_line,
    reference_of as reference_of, reply_after_thinking as reply_after_thinking,
)
from .judges.reading import (
    Json as Json, MarkedLabel as MarkedLabel, Odds as Odds, Rating as Rating, Text as Text,
)
from .judges.standin import Grader as Grader, matches_last_digit as matches_last_digit
from .judges.train import ENTAILMENT_PROMPT as ENTAILMENT_PROMPT, Verdicts as Verdicts
from .verifiers.answers.choice import MultipleChoice as MultipleChoice, option_order as option_order
from .verifiers.answers.final import boxed_answer as boxed_answer, tagged_answer as tagged_answer
from .verifiers.answers.judgement import (
    REFUSAL_PHRASES as REFUSAL_PHRASES, Factuality as Factuality, Selective as Selective,
    Verdict as Verdict, fact_worth as fact_worth, read_verdict as read_verdict,
    split_statements as split_statements,
)
from .verifiers.answers.short import (
    Abstention as Abstention, ExactAnswer as ExactAnswer, JsonAnswer as JsonAnswer,
    Keywords as Keywords, NumberAnswer as NumberAnswer, SetAnswer as SetAnswer, TokenF1 as TokenF1,
    contains_term as contains_term, matches_gold as matches_gold, normalise_text as normalise_text,
    stated_answer as stated_answer,
)
from .verifiers.answers.tools import ToolAnswer as ToolAnswer, ToolCalls as ToolCalls
from .verifiers.base import (
    Judgement as Judgement, Verifier as Verifier, binary_judgement as binary_judgement,
    guard_verifier as guard_verifier, require_field as require_field,
    strip_thinking as strip_thinking,
)
from .verifiers.code.patches import (
    Patch as Patch, difflib_ratio as difflib_ratio, unified_diffs as unified_diffs,
)
from .verifiers.code.programs import (
    ApiMigration as ApiMigration, CodeTests as CodeTests, code_blocks as code_blocks,
)
from .verifiers.compose import (
    Clip as Clip, Delta as Delta, Gate as Gate, Min as Min, Product as Product,
    WeightedMean as WeightedMean, clip_delta_steps as clip_delta_steps, clip_steps as clip_steps,
    delta_steps as delta_steps,
)
from .verifiers.gym import GymAnswer as GymAnswer
from .verifiers.logic.equivalence import are_equivalent as are_equivalent
from .verifiers.logic.stl import (
    STL_ATOM as STL_ATOM, NotFormula as NotFormula, parse_formula as parse_formula,
)
from .verifiers.logic.temporal import Temporal as Temporal, formula_aspects as formula_aspects
from .verifiers.maths.expressions import (
    Antiderivative as Antiderivative, Countdown as Countdown, Math as Math,
)
from .verifiers.registry import VERIFIERS as VERIFIERS, get_verifier as get_verifier
from .verifiers.sql.queries import (
    PartialSql as PartialSql, Sql as Sql, TableSql as TableSql, extract_query as extract_query,
)
from .verifiers.text.constraints import Constraints as Constraints
from .verifiers.text.formats import (
    Boxed as Boxed, Clean as Clean, Label as Label, Tags as Tags, TheoremVariant as TheoremVariant,
)
from .verifiers.text.similarity import (
    count_character_ngrams as count_character_ngrams, count_cosine as count_cosine,
    edit_similarity as edit_similarity, jaccard as jaccard, rouge_l as rouge_l,
)
from .verifiers.text.spelling import (
    Spelling as Spelling, cluster_consensus as cluster_consensus,
    normalise_characters as normalise_characters, rescale_similarity as rescale_similarity,
)
from .verifiers.text.translation import Translation as Translation

# Credit
from .credit.advantages import (
    group_mean as group_mean, group_std as group_std, leave_one_out as leave_one_out,
)
from .credit.again import Rehearse as Rehearse, Resampled as Resampled
from .credit.ema import Ema as Ema
from .credit.gae import (
    Gae as Gae, kl_needs as kl_needs,
)
from .credit.labelled import Labelled as Labelled
from .credit.length import (
    AdaptiveLength as AdaptiveLength, LengthReward as LengthReward, Shortest as Shortest,
)
from .credit.links import (
    Center as Center, Chain as Chain, Fact as Fact, Link as Link, Outcome as Outcome, Scale as Scale,
    Shift as Shift, chain as chain,
)
from .credit.pass_at_k import PassAtK as PassAtK
from .credit.penalty import LessKL as LessKL
from .credit.preferences import Compare as Compare, Rate as Rate, RatePrompts as RatePrompts
from .credit.rows import Imitate as Imitate, Prefer as Prefer
from .credit.scopes import (
    SameState as SameState, Stratum as Stratum, number_keys as number_keys,
    scope_keys as scope_keys,
)
from .credit.seats import Reader as Reader, Seat as Seat
from .credit.soft import SoftCenter as SoftCenter
from .credit.steps import (
    StepNumbers as StepNumbers, StepPairs as StepPairs, StepPenalty as StepPenalty,
    StepProgress as StepProgress, Vote as Vote,
)
from .credit.table import (
    Table as Table, Values as Values, fact_by_turn as fact_by_turn, table_signal as table_signal,
)
from .credit.trie import PrefixTree as PrefixTree
from .credit.turns import (
    Blend as Blend, Executed as Executed, Peers as Peers, TurnReturns as TurnReturns,
    discounted_turn_sums as discounted_turn_sums, turn_rewards as turn_rewards,
)

# Losses
from .objective.algebra import (
    Algebra as Algebra, Couples as Couples, Reduction as Reduction, Scaled as Scaled, Sum as Sum,
    reduce_terms as reduce_terms, sum_by_unit as sum_by_unit, token_mean as token_mean,
)
from .objective.kl import KLKind as KLKind, kl_quantity as kl_quantity, kl_terms as kl_terms
from .objective.mismatch import TIS as TIS
from .objective.policy import (
    KL as KL, Clipped as Clipped, Entropy as Entropy, Imitation as Imitation,
    Reinforce as Reinforce, TargetEntropy as TargetEntropy, Trust as Trust, ValueLoss as ValueLoss,
)
from .objective.preference import (
    DPO as DPO, Hinge as Hinge, ImitatePreferred as ImitatePreferred,
    JensenShannon as JensenShannon, chosen_nll as chosen_nll, pair_column as pair_column,
    preference_margins as preference_margins,
)
from .objective.residual import (
    Balance as Balance, PathConsistency as PathConsistency, ValueConsistency as ValueConsistency,
)
from .objective.reward_model import (
    BradleyTerry as BradleyTerry, CritiqueNLL as CritiqueNLL, Gaussian as Gaussian,
    Regression as Regression,
)
from .objective.shaped import Shaped as Shaped
from .objective.subset import On as On
from .objective.tokens import (
    DualClipped as DualClipped, TokenWeighted as TokenWeighted, TopTokens as TopTokens,
    Unmastered as Unmastered,
)
from .objective.track import Track as Track

# Weights that are merged or adapted, and what reads and steers a model
from .models.activations import activations as activations, steered as steered
from .models.arithmetic import (
    Average as Average, Dare as Dare, PermuteUnits as PermuteUnits,
    TaskArithmetic as TaskArithmetic, Ties as Ties, linear_barrier as linear_barrier,
    weights_of as weights_of, write_weights as write_weights,
)
from .models.calls import TagCalls as TagCalls
from .models.cursor import Cursor as Cursor
from .models.lora import LoRA as LoRA
from .models.probe import Probe as Probe, fit_probe as fit_probe
from .models.score import output_gradients as output_gradients, score_pairs as score_pairs

# Plans of a cluster, and what they cost
from .scale.dataflows import DATAFLOWS as DATAFLOWS, Algorithm as Algorithm, calls_of as calls_of
from .scale.estimate import (
    DECODERS as DECODERS, Device as Device, Workload as Workload, moves_of as moves_of,
)
from .scale.local_ranks import run_ranks as run_ranks
from .scale.plan import (
    CallOption as CallOption, Choice as Choice, ExecutionPlan as ExecutionPlan,
    ModelCall as ModelCall, Parallelism as Parallelism,
    Reallocation as Reallocation,
    best_plan as best_plan, colocated_choice as colocated_choice, every_choice as every_choice,
    fast_choice as fast_choice, megatron_choice as megatron_choice, metropolis as metropolis,
    on_largest as on_largest, placements as placements, plan_of as plan_of, random_plan as random_plan,
    symmetric_choice as symmetric_choice,
)
from .scale.rehearse import (
    CallSeconds as CallSeconds, measure_calls as measure_calls, rehearse as rehearse,
)
from .scale.slots import (
    fewest_steps as fewest_steps, longest_first as longest_first, refill_steps as refill_steps,
    rounds_steps as rounds_steps, shortest_first as shortest_first,
)
from .scale.resharding import TensorLayout as TensorLayout, Way as Way, reshard as reshard

# Learners that are no language models, and what guides them
from .services.chat.base import question_messages as question_messages
from .services.chat.structured import ask as ask
from .control.actor_critic import PPO as PPO
from .control.guides import (
    Asking as Asking, ChatGuide as ChatGuide, ComputedGuide as ComputedGuide, Guidance as Guidance,
    Guide as Guide, ShuffledGuide as ShuffledGuide, shuffle_rows as shuffle_rows,
)
from .control.gym import GymSimulator as GymSimulator
from .control.language import (
    Expression as Expression, Quantities as Quantities, Quantity as Quantity,
    RewardProgram as RewardProgram, checked_program as checked_program, columns_of as columns_of,
    lint_expression as lint_expression, spell_quantities as spell_quantities,
)
from .control.networks import load_policy as load_policy, save_policy as save_policy
from .control.q import DoubleQ as DoubleQ
from .control.rooms import Rooms as Rooms
from .control.shaping import (
    Decomposer as Decomposer, Decomposition as Decomposition, Potential as Potential, Shaping as Shaping, as_paid as as_paid,
    at_the_end as at_the_end,
)
from .control.simulators import (
    Box as Box, Paths as Paths, Simulator as Simulator, mean_return as mean_return,
    play_games as play_games, returns_of as returns_of,
)
from .control.spread import SimpleSpread as SimpleSpread

# Claims, and what watches a run
from .ledger.expectations import (
    Greater as Greater, Needs as Needs, Same as Same, Veto as Veto,
)
from .ledger.experiment import TWENTY_SEEDS as TWENTY_SEEDS, Experiment as Experiment
from .ledger.measures import (
    Area as Area, Balanced as Balanced, Cell as Cell, Final as Final, Less as Less, Logged as Logged,
    Measure as Measure, Moving as Moving, OverMatchedStart as OverMatchedStart,
    TokensTo as TokensTo,
)
from .ledger.untrained import Untrained as Untrained
from .run.evaluators import Exam as Exam, MemoryExam as MemoryExam
from .run.exploitability import Exploitability as Exploitability
from .run.evaluation import (
    attempt_tasks as attempt_tasks, chosen_tasks as chosen_tasks, greedy_held_out as greedy_held_out,
    judge_held_out as judge_held_out, vote_key as vote_key,
)
from .run.merging import Merged as Merged
from .run.overoptimisation import Overoptimisation as Overoptimisation
from .ends import HeldOut as HeldOut, at_ends as at_ends
from .trackers.base import Tracker as Tracker
from .scale.cluster import Cluster as Cluster
from .scale.placement import OnCluster as OnCluster

__version__: str
