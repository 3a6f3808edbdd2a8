"""The five papers, each with a page in docs/results."""

from __future__ import annotations

from reproduction.entry import Paper

PAPERS = {
    paper.key: paper
    for paper in (
        Paper(
            "seed0",
            "Efficient Federated Learning with Timely Update Dissemination",
            "J. Jia, J. Liu, C. Huo, Y. Shen, Y. Zhou, H. Dai, D. Dou",
            "2507.06031",
            "dissemination",
        ),
        Paper(
            "seed1",
            "Asynchronous Federated Learning Using Outdated Local Updates Over TDMA Channel",
            "J. Song, J.-P. Hong",
            "",
            "tdma",
        ),
        Paper(
            "seed2",
            "FedASMU: Efficient Asynchronous Federated Learning with Dynamic Staleness-aware Model"
            " Update",
            "J. Liu, J. Jia, T. Che, C. Huo, J. Ren, Y. Zhou, H. Dai, D. Dou",
            "2312.05770",
            "fedasmu",
        ),
        Paper(
            "seed3",
            "Stragglers Can Contribute More: Uncertainty-Aware Distillation for Asynchronous"
            " Federated Learning",
            "Y. Wang, F. Ma, J. Chen",
            "2511.19966",
            "fedecho",
        ),
        Paper(
            "seed4",
            "Towards Efficient and Stable K-Asynchronous Federated Learning with Unbounded Stale"
            " Gradients on Non-IID Data",
            "Z. Zhou, Y. Li, X. Ren, S. Yang",
            "2203.01214",
            "wkafl",
        ),
    )
}
