"""The claims on the front page of docs/results, chosen before the runs at the papers' scale.

Of each paper what its abstract and its main table or figure say, what of it rests on the reading of
the text, and what our own maps ask.
"""

from __future__ import annotations

CHOSEN = (
    ("seed0-table4-batch", "FedASMU is more accurate than FedAsync and FedBuff"),
    ("seed0-table4-batch", "FedASMU reaches the target accuracy"),
    ("seed0-table4-batch", "FedSSMU is more accurate than FedAvg"),
    ("seed0-table4-batch", "fedasmu is better than fedasmu-fa"),
    ("seed0-table4-pass", "FedASMU is more accurate than FedAsync and FedBuff"),
    ("seed0-table4-pass", "fedasmu is better than fedasmu-fa"),
    ("seed0-linear", "Early, a merge acts like a smaller alpha"),
    ("seed0-map", "With the best of four weights"),
    ("seed0-corners", "In the best corner"),
    ("seed0-fig8", "fedasmu is more accurate and faster than fedasync (links50)"),
    ("seed1-table1", "The number of global models"),
    ("seed1-table1", "Intentional delay costs no round"),
    ("seed1-fig6", "Over slots, the loss with r = 5"),
    ("seed1-fig3", "Without delay the loss is lowest at S = 50 (reading A)"),
    ("seed1-fig4", "Intentional delay makes the best S smaller (reading A)"),
    ("seed1-fig5", "Intentional delay lowers the loss at S = 1, 5, 10 and 25 (reading A)"),
    ("seed1-readings", "One reading"),
    ("seed1-bound", "An S learns exactly if eta H lambda is below the linear bound (reading A)"),
    ("seed1-corners", "Best corner"),
    ("seed2-table2", "FedASMU is more accurate"),
    ("seed3-table2", "FedEcho is more accurate than fedbuff"),
    ("seed3-table2", "FedEcho is more accurate than fadas"),
    ("seed3-table2", "FedEcho is more accurate than FADAS with delay-adaptive steps under large"),
    ("seed3-table2", "FedEcho is level under large and mild delay"),
    ("seed3-map", "Under large delay the distillation gives"),
    ("seed4-table3", "WKAFL is more accurate than TWAFL with one label"),
    ("seed4-table3", "WKAFL is more accurate than SASGD with one label"),
    ("seed4-table3", "WKAFL is steadier than TWAFL"),
    ("seed4-table3", "TWAFL with WKAFL's clipping"),
    ("seed4-table3", "Selecting gradients that agree"),
)
